"""Storages for studies: a file, and a PostgreSQL server that runs for the whole session."""

import itertools
import shutil
import tempfile
import warnings
from pathlib import Path

import pytest

from autocompile.search.study.opening import sqlite_url


@pytest.fixture(scope="session")
def postgresql():
    """A server of its own, in a directory that is deleted with it; as root it runs as another user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the directory for its socket
        import pgserver
    directory = Path(tempfile.mkdtemp(prefix="autocompile-test-postgresql-"))
    server = pgserver.get_server(directory, cleanup_mode="stop")
    yield server
    server.cleanup()
    shutil.rmtree(directory, ignore_errors=True)


_NUMBERS = itertools.count()


@pytest.fixture
def database(postgresql):
    """The URL of an empty database."""
    name = f"study{next(_NUMBERS)}"
    postgresql.psql(f"create database {name};")
    return postgresql.get_uri(name)


@pytest.fixture(params=["sqlite", "postgresql"])
def storage(request, tmp_path):
    """The URL of an empty storage of either kind."""
    if request.param == "sqlite":
        return sqlite_url(tmp_path / "study.db")
    return request.getfixturevalue("database")
