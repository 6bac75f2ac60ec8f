"""Describe why a script ended before it defined its workload, by `sys.exit` or in its argument parser."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autocompile.core.errors import InvalidWorkload

_PARSER = re.compile(r"\berror: ", re.IGNORECASE)
_PARSERS_STATUS = 2
_KEPT = 4096


class Heard:
    """The original standard error stream, and the `last_line` that was written to it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._latest = ""

    def write(self, text: str) -> int:
        """Write to the original stream."""
        self._latest = (self._latest + text)[-_KEPT:]
        return int(self._stream.write(text) or 0)

    @property
    def last_line(self) -> str:
        """The last line that is not empty, or ""."""
        return next((line.strip() for line in reversed(self._latest.splitlines()) if line.strip()), "")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __reduce__(self) -> tuple[Any, ...]:
        # A model that holds standard error gets that of the process in which it is unpickled.
        return getattr, (sys, "stderr")


@contextmanager
def run_as_a_script(path: Path, arguments: Sequence[str] = ()) -> Iterator[Heard]:
    """Set `sys.argv` as Python does for a script with these arguments, and listen to standard error."""
    before, stream = sys.argv, sys.stderr
    heard = Heard(stream)
    sys.argv, sys.stderr = [shown(path), *arguments], heard
    try:
        yield heard
    finally:
        sys.argv, sys.stderr = before, stream


def ended(end: SystemExit, last_line: str, path: Path, arguments: Sequence[str] = (), *, how: str) -> InvalidWorkload:
    """Return the error for a script that ended itself.

    `last_line` is the last line that it wrote to standard error. `how` tells the user how to define a workload.
    """
    code = end.code
    status = 0 if code is None else code if isinstance(code, int) else 1
    said = last_line if isinstance(code, int | None) else str(code).strip().split("\n")[0]
    if not status:
        return InvalidWorkload(
            "exited with status 0 before it defined a workload", where=shown(path), remedy=f"{how} before it exits"
        )
    is_parsers = status == _PARSERS_STATUS and _PARSER.search(said)
    words = f'exited with status {status}: "{said}"' if said else f"exited with status {status}"
    remedy = "give its arguments after `--`, as in `autocompile tune SCRIPT -- --name value`"
    return InvalidWorkload(words, where=shown(path), remedy=remedy if is_parsers else seen_whole(path, arguments))


def seen_whole(path: Path, arguments: Sequence[str]) -> str:
    """Return the remedy for when one line does not tell enough."""
    return f"run `{shlex.join(['python', shown(path), *arguments])}` to see the full output"


def shown(path: Path) -> str:
    """Return the shortest form of a path from the working directory."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith(os.pardir) else relative
