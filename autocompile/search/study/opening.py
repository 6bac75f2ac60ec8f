"""Open a storage: interpret its URL, and explain in one line without a password why it cannot be opened."""

from __future__ import annotations

import importlib.util
import random
import re
import time
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import StorageInternalError
from optuna.samplers import RandomSampler
from optuna.storages import BaseStorage, InMemoryStorage, RDBStorage
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from autocompile.core.errors import InvalidValue
from autocompile.interrupts import uninterrupted

optuna.logging.set_verbosity(optuna.logging.WARNING)

# Runs that start together create the same tables; the second run finds them at its next attempt.
_ATTEMPTS = 6
# In seconds: the timeout for an address that does not answer, and for a locked SQLite file.
_CONNECT_S, _LOCKED_S = 10, 60.0
_POSTGRESQL = ("postgresql", "postgres")
_INSTALL = "pip install 'torch-autocompile[postgresql]'"


def sqlite_url(path: Path) -> str:
    """Return the storage URL of a file; its path may have any characters."""
    return URL.create("sqlite", database=str(path)).render_as_string()


def shown(url: str) -> str:
    """Return the URL without a password, so that it may be printed."""
    without_user_info = re.sub(r"://([^/:@\s]*):.*@", r"://\1:***@", url)
    return re.sub(r"(?i)(password=)[^&\s]*", r"\1***", without_user_info)


def open_storage(url: str | None) -> BaseStorage:
    """Open the storage and create its tables; None is the memory of this process.

    Raises InvalidValue, which says what to do.
    """
    if url is None:
        return InMemoryStorage()
    try:
        with uninterrupted():
            return _opened(_with_driver(url))
    except InvalidValue:
        raise
    except Exception as fault:  # any exception of the database's driver
        said, remedy = _explained(fault, url)
        raise InvalidValue(said, where=f"storage {shown(url)}", remedy=remedy) from None


def open_study(name: str, storage: BaseStorage, url: str | None) -> optuna.Study:
    """Open the study of this name, or create it. Raises InvalidValue, which says what to do."""
    try:
        with uninterrupted():
            return optuna.create_study(
                study_name=name, storage=storage, sampler=RandomSampler(), direction="minimize", load_if_exists=True
            )
    except Exception as fault:  # any exception of the database's driver
        close_storage(storage)
        said, remedy = _explained(fault, url or "")
        raise InvalidValue(said, where=f"storage {shown(url or '')}", remedy=remedy) from None


def close_storage(storage: BaseStorage) -> None:
    """Close its connections."""
    if isinstance(storage, RDBStorage):
        with uninterrupted():
            storage.remove_session()
            storage.engine.dispose()


def _opened(url: URL) -> BaseStorage:
    text = url.render_as_string(hide_password=False)
    arguments: dict[str, Any] = {}
    if url.get_backend_name() == "sqlite":
        arguments = {"connect_args": {"timeout": _LOCKED_S}}
    elif url.get_backend_name() == "postgresql":
        arguments = {"connect_args": {"connect_timeout": _CONNECT_S}}
    _make_tables(text, {**arguments, "poolclass": NullPool})  # a failure then leaves no connection
    # Reconnects after a server restart.
    return RDBStorage(text, engine_kwargs={**arguments, "pool_pre_ping": True}, skip_table_creation=True)


def _make_tables(url: str, settings: dict[str, Any]) -> None:
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            RDBStorage(url, engine_kwargs=settings)
        except (DBAPIError, StorageInternalError) as fault:
            is_race = isinstance(fault, IntegrityError) or "already exists" in str(fault)
            if not is_race or attempt == _ATTEMPTS:
                raise
            time.sleep(random.uniform(0.05, 0.5))  # noqa: S311  no secret
        else:
            return


def _with_driver(text: str) -> URL:
    """Return the URL with the driver that is installed. Raises InvalidValue if there is none."""
    url = make_url(text)
    if url.drivername not in _POSTGRESQL:
        return url
    for driver in ("psycopg", "psycopg2"):
        if importlib.util.find_spec(driver):
            return url.set(drivername=f"postgresql+{driver}")
    raise InvalidValue(
        "PostgreSQL needs the driver psycopg, which is not installed", where=f"storage {shown(text)}", remedy=_INSTALL
    )


# Parts of drivers' messages, with the fault and the remedy in words.
_ADVICE = (
    ("password authentication failed", "the server refuses the password", "give the right one, or set PGPASSWORD"),
    ("no password supplied", "the server requires a password", "put it into the URL, or set PGPASSWORD"),
    ("permission denied", "no permission to write there", "grant the user the right to create tables in it"),
    ("readonly database", "no permission to write there", "give a file that this user can write"),
    ("read-only transaction", "no permission to write there", "give a server that accepts writes"),
    ("unable to open database file", "the file cannot be opened", "give a path where this user can write"),
    ("not a database", "the file is not an SQLite database", "give another path"),
    ("malformed", "the file is damaged", "delete it, or give another path"),
    ("timeout expired", "no server answers", "start it, or correct the address"),
    ("connection refused", "no server answers", "start it, or correct the address"),
    ("could not translate host name", "no such host", "correct the address"),
    ("failed to resolve host", "no such host", "correct the address"),
    ("no such file or directory", "no server answers", "start it, or correct the address"),
    ("database is locked", "another process keeps it locked", "wait until it has ended"),
    ("no longer compatible", "another version of Optuna made it", "give another storage, or `optuna storage upgrade`"),
)  # fmt: skip


def _explained(fault: BaseException, url: str) -> tuple[str, str]:
    """Return what is wrong, and what to do, in words without a password."""
    causes = [fault]
    while (cause := causes[-1].__cause__) is not None:
        causes.append(cause)
    if any(isinstance(cause, ArgumentError | NoSuchModuleError) for cause in causes):
        example = "sqlite:///study.db or postgresql://user@host/database"
        return "is not the URL of a database that Optuna supports", f"give one like {example}"
    if any(isinstance(cause, ImportError) for cause in causes):
        return "the database's driver is not installed", "install it with pip"
    text = " ".join(str(cause) for cause in causes)
    if re.search(r'database ".*" does not exist', text):
        return "the server has no such database", "create it with createdb, or correct the URL"
    if re.search(r'role ".*" does not exist', text):
        return "the server has no such user", "correct the URL"
    for said, fault_in_words, remedy in _ADVICE:
        if said in text.lower():
            return fault_in_words, remedy
    first = next((line for line in str(causes[-1]).splitlines() if line.strip()), type(fault).__name__)
    return f"cannot open the study there: {_without_password(first, url)}", "give another Optuna storage URL"


def _without_password(text: str, url: str) -> str:
    try:
        password = make_url(url).password
    except ArgumentError:
        password = None
    return shown(text.replace(str(password), "***") if password else text)
