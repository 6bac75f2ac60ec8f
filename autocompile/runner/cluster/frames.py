"""Messages on a pipe: eight bytes for the length, followed by that many bytes."""

from __future__ import annotations

import math
import os
import select
import time

_LENGTH = 8


def write(descriptor: int, data: bytes, within_s: float | None = None) -> None:
    """Write a message. Raises OSError if the reader is gone, and TimeoutError if it takes longer than `within_s`.

    With `within_s`, the descriptor must be non-blocking.
    """
    until = _from_now(within_s)
    rest = memoryview(len(data).to_bytes(_LENGTH, "little") + data)
    while rest:
        _wait(descriptor, select.POLLOUT, until)
        rest = rest[os.write(descriptor, rest) :]


def read(descriptor: int, within_s: float | None = None) -> bytes | None:
    """Return the next message, or None at the end of the input, even within a message.

    Raises TimeoutError if it takes longer than `within_s`.
    """
    until = _from_now(within_s)
    length = _exactly(descriptor, _LENGTH, until)
    return None if length is None else _exactly(descriptor, int.from_bytes(length, "little"), until)


def _exactly(descriptor: int, count: int, until: float) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        _wait(descriptor, select.POLLIN, until)
        piece = os.read(descriptor, min(count - len(data), 1 << 20))
        if not piece:
            return None
        data += piece
    return bytes(data)


def _from_now(within_s: float | None) -> float:
    return math.inf if within_s is None else time.monotonic() + within_s


def _wait(descriptor: int, event: int, until: float) -> None:
    if until == math.inf:
        return
    waiting = select.poll()
    waiting.register(descriptor, event)
    if not waiting.poll(1e3 * max(0.0, until - time.monotonic())):
        raise TimeoutError
