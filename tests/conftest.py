"""Fixtures for all tests. Tests in tests/real run torch and are marked `real`."""

import os
import signal

import pytest
from places import REPOSITORY

# Where several processes test side by side, each has its share of the cores. With more threads than cores, threads wait
# for each other, and an operator can take ten times as long. This precedes the import of torch.
if (workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))) > 1:
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // workers)))

# Files that take minutes, the longest first. They start first, so that no process waits for one of them at the end.
LONG = (
    "test_tune.py",
    "test_run_script.py",
    "test_generate.py",
    "test_training_tuned.py",
    "test_example_scripts.py",
    "test_examples.py",
    "test_goals.py",
    "test_watched_scripts.py",
    "test_side_by_side_tuned.py",
    "test_artifact.py",
    "test_training_prepared.py",
    "test_dask.py",
    "test_functions.py",
    "test_script_loaders.py",
    "test_watched_training.py",
    "test_run_training.py",
)


def pytest_collection_modifyitems(items):
    for item in items:
        if is_real(item):
            item.add_marker(pytest.mark.real)
    items.sort(key=lambda item: (turn(item), not is_real(item)))


def is_real(item):
    return "real" in item.path.relative_to(REPOSITORY / "tests").parts


def turn(item):
    return LONG.index(item.path.name) if item.path.name in LONG else len(LONG)


@pytest.fixture(scope="session", autouse=True)
def ctrl_c():
    """Let child processes receive Ctrl-C even if the tests run as a background job, which ignores SIGINT."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def user_cache(tmp_path_factory):
    """Use one toolchain cache for the whole session, not the user's; and allow bytecode, as is the default."""
    patch = pytest.MonkeyPatch()
    patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    patch.setenv("AUTOCOMPILE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()
