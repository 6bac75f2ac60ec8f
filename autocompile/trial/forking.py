"""Whether processes forked from this one can use a GPU: once CUDA's driver was started, it survives no fork."""

from __future__ import annotations

import contextlib
import os
import select
import signal

import torch

_LONGEST_S = 60.0


def forked_can_use_cuda() -> bool:
    """Fork a child that starts CUDA; whether it could. So this process itself does not touch the driver.

    Torch cannot be asked: where something else has touched the driver, it does not know. NVML cannot either, as it does
    not answer in every container.
    """
    if torch.version.cuda is None:
        return False
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _start_cuda(writer)
    os.close(writer)
    try:
        ready, _, _ = select.select([reader], [], [], _LONGEST_S)
        return bool(ready) and os.read(reader, 1) == b"1"
    finally:
        os.close(reader)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _start_cuda(writer: int) -> None:
    """In the child: say whether it works, and end without anything that the parent would do at its end."""
    said = b"0"
    try:
        with contextlib.suppress(BaseException):  # whatever a driver raises: then there is none to use, which is said
            torch.cuda.init()  # type: ignore[no-untyped-call]
            said = b"1"
    finally:
        os.write(writer, said)
        os._exit(0)
