import pytest
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
