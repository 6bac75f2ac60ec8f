"""What a type of device needs to be timed and measured: one row for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Device:
    """`synchronize` waits until it has done all that it was given.

    `matrix` is the size of a square matrix product that keeps all of it busy. `copied_bytes` are more than any cache of
    today holds, as a copy within a cache is another ceiling.
    """

    synchronize: Callable[[], None]
    matrix: int
    copied_bytes: int


DEVICES = {
    "cpu": Device(lambda: None, matrix=1024, copied_bytes=128 << 20),
    "cuda": Device(torch.cuda.synchronize, matrix=4096, copied_bytes=512 << 20),
}
