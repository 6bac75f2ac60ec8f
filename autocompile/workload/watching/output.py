"""Limit what a watched script prints: its beginning and its end are kept."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# This many bytes are kept of the beginning, and as many of the end.
_KEPT = 512 * 1024
_PIECE = 64 * 1024
# Processes that the script has left running may continue to print. They are awaited for at most this long.
_PATIENCE_S = 1.0


@contextmanager
def limited_output(kept: int = _KEPT, *, shows: str = "") -> Iterator[None]:
    """Limit the output of this process, and of those that it starts, within the context.

    Of standard output and standard error together, the first `kept` bytes are passed on as they come, and the last
    `kept` bytes at the end. A separate process does that, because native code that holds Python's lock may print too.
    All output also goes to the named pipe `shows`, if there is one, as long as it has a reader.
    """
    reading, writing = os.pipe()
    before = os.dup(1), os.dup(2)
    sys.stdout.flush()
    sys.stderr.flush()
    reader = os.fork()
    if reader == 0:
        os.close(writing)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with suppress(BaseException):  # the fork must never continue to run the script
            _pass_on(reading, before[0], kept, _Shown(shows))
        os._exit(0)
    os.close(reading)
    os.dup2(writing, 1)
    os.dup2(writing, 2)
    os.close(writing)
    was_by_line = _by_line(on=True)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # the script may have closed or replaced them
                stream.flush()
        _by_line(on=was_by_line)
        os.dup2(before[0], 1)
        os.dup2(before[1], 2)
        os.close(before[0])
        os.close(before[1])
        _await(reader)


def _by_line(*, on: bool) -> bool:
    """Turn line buffering of standard output on or off, and return the previous state.

    With line buffering, each line comes before what other processes print later.
    """
    with suppress(Exception):  # the script may have closed or replaced it
        was = bool(sys.stdout.line_buffering)
        sys.stdout.reconfigure(line_buffering=on)  # type: ignore[union-attr]
        return was
    return False


class _Shown:
    """A named pipe to write to, or nothing."""

    def __init__(self, path: str) -> None:
        self._pipe: int | None = None
        if path:
            with suppress(OSError):  # it has no reader
                self._pipe = os.open(path, os.O_WRONLY)

    def write(self, piece: bytes) -> None:
        """Write to the pipe, if it has a reader."""
        while self._pipe is not None and piece:
            try:
                piece = piece[os.write(self._pipe, piece) :]
            except OSError:  # the reader has closed it
                self._pipe = None


def _pass_on(reading: int, writing: int, kept: int, shown: _Shown) -> None:
    passed, left_out, tail = 0, 0, b""
    while piece := os.read(reading, _PIECE):
        shown.write(piece)
        now, later = piece[: kept - passed], piece[kept - passed :]
        os.write(writing, now)
        passed += len(now)
        tail += later
        left_out += max(0, len(tail) - kept)
        tail = tail[-kept:] if tail else tail
    if left_out:
        os.write(writing, f"\n[{left_out:,} bytes are left out here]\n".encode())
    os.write(writing, tail)


def _await(reader: int) -> None:
    patience = time.monotonic() + _PATIENCE_S
    while time.monotonic() < patience:
        if os.waitpid(reader, os.WNOHANG)[0]:
            return
        time.sleep(0.01)
    os.kill(reader, signal.SIGKILL)
    os.waitpid(reader, 0)
