"""A script that ends itself before it has defined its workload, by `sys.exit` or its parser of arguments, in words."""

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
    """Standard error as it was, and the `last_line` that was written to it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._latest = ""

    def write(self, text: str) -> int:
        """Pass it on."""
        self._latest = (self._latest + text)[-_KEPT:]
        return int(self._stream.write(text) or 0)

    @property
    def last_line(self) -> str:
        """The last that is not empty, or ""."""
        return next((line.strip() for line in reversed(self._latest.splitlines()) if line.strip()), "")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __reduce__(self) -> tuple[Any, ...]:
        # What a model keeps of standard error is that of the process where it is.
        return getattr, (sys, "stderr")


@contextmanager
def run_as_a_script(path: Path, arguments: Sequence[str] = ()) -> Iterator[Heard]:
    """As Python runs it with these arguments: `sys.argv` has them. What it says on standard error is heard."""
    before, stream = sys.argv, sys.stderr
    heard = Heard(stream)
    sys.argv, sys.stderr = [shown(path), *arguments], heard
    try:
        yield heard
    finally:
        sys.argv, sys.stderr = before, stream


def ended(end: SystemExit, last_line: str, path: Path, arguments: Sequence[str] = (), *, how: str) -> InvalidWorkload:
    """What to tell of a script that ended itself; `last_line` is what it said last, `how` a workload is defined."""
    code = end.code
    status = 0 if code is None else code if isinstance(code, int) else 1
    said = last_line if isinstance(code, int | None) else str(code).strip().split("\n")[0]
    if not status:
        return InvalidWorkload(
            "ended itself with status 0 before there was a workload", where=shown(path), remedy=f"{how}, before it ends"
        )
    is_parsers = status == _PARSERS_STATUS and _PARSER.search(said)
    words = f'ended itself with status {status}: "{said}"' if said else f"ended itself with status {status}"
    remedy = "give its arguments after `--`, as in `autocompile tune SCRIPT -- --name value`"
    return InvalidWorkload(words, where=shown(path), remedy=remedy if is_parsers else seen_whole(path, arguments))


def seen_whole(path: Path, arguments: Sequence[str]) -> str:
    """What to do where one line does not tell enough."""
    return f"run `{shlex.join(['python', shown(path), *arguments])}` to see it whole"


def shown(path: Path) -> str:
    """A path as short as it can be given from the working directory."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith(os.pardir) else relative
