"""What a child prints, shown to the user as it comes: by a named pipe, from which a thread reads."""

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
    """The path of a named pipe: what is written there meanwhile goes to standard error, or to `show`."""
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
    """Until it is over, and nothing is left to be read."""
    text = codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        was_over = over.is_set()
        piece = os.read(reading, _PIECE) if select.select([reading], [], [], _LOOK_S)[0] else b""
        if piece:
            with contextlib.suppress(OSError, ValueError):  # nobody reads it any more; the script is to go on
                show(text.decode(piece))
        elif was_over:
            return
        else:
            over.wait(_LOOK_S)  # without a writer it is always ready, with nothing
