import pytest
import torch
from laboratory import Laboratory, reply_to

from autocompile.core.job import Limits, ToolchainTask
from autocompile.runner.local import LocalRunner


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
