"""Fixtures for all tests. What lies in tests/real runs torch and is marked so."""

import signal
from pathlib import Path

import pytest
from places import REPOSITORY


def pytest_collection_modifyitems(items):
    for item in items:
        if "real" in Path(item.fspath).relative_to(REPOSITORY / "tests").parts:
            item.add_marker(pytest.mark.real)


@pytest.fixture(scope="session", autouse=True)
def ctrl_c():
    """Heard by what tests start, also where these run in the background of a shell, which has them ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def user_cache(tmp_path_factory):
    """One toolchain cache for the whole session, and none of the user's; and bytecode, which not everybody forbids."""
    patch = pytest.MonkeyPatch()
    patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    patch.setenv("AUTOCOMPILE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()
