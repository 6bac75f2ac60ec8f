import ctypes
import sys

import pytest
import torch
from laboratory import Laboratory, reply_to

from autocompile.core.job import Limits, ToolchainTask
from autocompile.runner.local import LocalRunner


@pytest.fixture(autouse=True)
def left_as_it_was():
    """What a trial that is measured in this process sets for good, and what OpenVINO leaves behind, is undone.

    Where several of OpenVINO's cores have ended in the order in which they began, the signal stack of the thread lies
    in memory that is gone, and the next signal that has a handler, as SIGCHLD has after a DataLoader's workers, ends
    the process.
    """
    yield
    if "torch._dynamo" in sys.modules:
        torch.compiler.set_stance("default")
        torch._dynamo.config.fail_on_recompile_limit_hit = False
    ctypes.CDLL(None).sigaltstack(ctypes.byref(_SignalStack(None, _DISABLED, 0)), None)


_DISABLED = 2


class _SignalStack(ctypes.Structure):
    """As <signal.h> has it on Linux."""

    _fields_ = (("pointer", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


@pytest.fixture(scope="session")
def runner(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runner")
    with LocalRunner(directory / "jobs", directory / "toolchain") as local:
        assert not reply_to(local, ToolchainTask("cpu"), Limits(120.0), cache="toolchain").problem
        yield local


@pytest.fixture
def laboratory(runner, tmp_path):
    return Laboratory(runner, tmp_path)


@pytest.fixture
def one_thread():
    """For this process, and what is spooled in it: two that wait for each other are slow beside others."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
