"""Describes the result for the prompts of a model that generates text."""

from __future__ import annotations

from collections.abc import Iterator

from autocompile.core.document import Document
from autocompile.core.units import format_ms
from autocompile.report.generated import generated_words


def prompts_words(document: Document) -> str:
    """Return a sentence on prompts, with a space before it; "" if they were not tuned."""
    entry = document.prompts
    if entry is None:
        return ""
    if entry.left:
        return f" Prompts are left to the model itself: {entry.left}."
    gain, took = entry.speedup, "" if entry.latency_ms is None else f", {format_ms(entry.latency_ms)} a prompt"
    assert gain is not None
    return f" Prompts: {entry.label}, {gain.value:.2f}x (95%: {gain.low:.2f} to {gain.high:.2f}){took}."


def prompts_lines(document: Document) -> Iterator[str]:
    """Yield how whole texts were generated with decode steps and prompts as recommended, and where to read more."""
    entry = document.prompts
    if entry is None or not entry.label:
        return
    if entry.generated is not None:
        yield f"{document.winner.label}, prompts by {entry.label}: {generated_words(entry.generated)}"
    if entry.directory:
        yield f"`autocompile show` of its directory {entry.directory} has the report on prompts"
