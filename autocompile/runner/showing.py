"""Show a child's output to the user as it is printed. A thread reads it from a named pipe."""

from __future__ import annotations

import codecs
import contextlib
import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from autocompile.scratch import Scratch

_PIECE = 64 * 1024
_LOOK_S = 0.1


@contextmanager
def shown_live(show: Callable[[str], object] | None = None) -> Iterator[str]:
    """Yield the path of a named pipe. Text written to the pipe goes to standard error, or to `show`."""
    with Scratch() as scratch:
        path = Path(scratch) / "shown"
        os.mkfifo(path)
        reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        over = threading.Event()
        thread = threading.Thread(target=_show, args=(reading, over, show or _to_standard_error), daemon=True)
        thread.start()
        try:
            yield str(path)
        finally:
            over.set()
            thread.join()
            os.close(reading)


def _to_standard_error(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _show(reading: int, over: threading.Event, show: Callable[[str], object]) -> None:
    """Show the text until `over` is set and there is nothing left to read."""
    text = codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        was_over = over.is_set()
        piece = os.read(reading, _PIECE) if select.select([reading], [], [], _LOOK_S)[0] else b""
        if piece:
            with contextlib.suppress(OSError, ValueError):  # standard error is closed; the script should continue
                show(text.decode(piece))
        elif was_over:
            return
        else:
            over.wait(_LOOK_S)  # without a writer, the pipe is always ready but has no data
