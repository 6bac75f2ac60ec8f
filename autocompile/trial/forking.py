"""Check whether processes forked from this one can use a GPU: once CUDA's driver has started, it survives no fork."""

from __future__ import annotations

import contextlib
import os
import select
import signal

import torch

_LONGEST_S = 60.0


def forked_can_use_cuda() -> bool:
    """Fork a child that starts CUDA, and return whether it could. This process itself does not touch the driver.

    Torch does not know whether other code has touched the driver. NVML does not answer in every container.
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
    """In the child: report whether CUDA works, and exit without running the exit handlers inherited from the parent."""
    said = b"0"
    try:
        with contextlib.suppress(BaseException):  # whatever the driver raises, the answer is then that CUDA is unusable
            torch.cuda.init()  # type: ignore[no-untyped-call]
            said = b"1"
    finally:
        os.write(writer, said)
        os._exit(0)
