"""Compares the machine that an artifact was packed for with this one. No torch."""

from __future__ import annotations

import platform
from collections.abc import Iterator

from autocompile.core.manifest import Requirements
from autocompile.processor import instructions
from autocompile.runtime.kind import Kind


def of_the_processor(needed: Requirements) -> Iterator[tuple[str, str]]:
    """Yield what differs, by name and in words: the architecture, or instructions that this processor lacks."""
    if needed.architecture != platform.machine():
        yield "architecture", f"packed on {needed.architecture}, and this is {platform.machine()}"
    missing = sorted(set(needed.instructions) - set(instructions()))
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        yield "instructions", f"this processor lacks {', '.join(missing[:5])}{more}, for which it was compiled"


def of_the_library(needed: Requirements, kind: Kind, device_type: str) -> tuple[str, str]:
    """Return how the runtime's library (beyond torch) differs from when it was packed, and a remedy; or "" twice.

    The command in the remedy names the version, because a program can only be loaded by the version that packed it.
    """
    here = kind.version()
    if needed.library == here:
        return "", ""
    brings = kind.distribution(device_type)
    library = brings or kind.name
    # The text after the version is about the processor, which no command can change.
    wanted, found = needed.library.partition(" ")[0], here.partition(" ")[0]
    remedy = f"pip install {brings}=={wanted}" if brings and wanted and wanted != found else ""
    if not here and brings:
        return f"packed with {library} {needed.library}, which is not installed here", remedy
    return f"packed with {library} {needed.library or 'none'}, and this is {here or 'none'}", remedy
