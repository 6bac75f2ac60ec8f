"""A storage that cannot be opened: the message is one line, says what to do, and contains no password."""

import importlib.util
import socket

import pytest
from builders import environment
from test_search import run, said

from autocompile.core.errors import InvalidValue
from autocompile.search.study.opening import close_storage, open_storage, open_study, shown, sqlite_url

SECRET = "hunter2%40x"


def message_of(url):
    with pytest.raises(InvalidValue) as caught:
        open_study("net", open_storage(url), url)
    told = str(caught.value)
    assert "\n" not in told
    assert "hunter2" not in told
    return told


def test_an_address_where_no_server_answers():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = message_of(f"postgresql://me:{SECRET}@127.0.0.1:{port}/studies")
    assert told == (
        f"storage postgresql://me:***@127.0.0.1:{port}/studies: no server answers; start it, or correct the address"
    )


def test_a_missing_driver(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    told = message_of(f"postgresql://me:{SECRET}@db/studies")
    assert "needs the driver psycopg, which is not installed; pip install 'torch-autocompile[postgresql]'" in told


def test_a_file_where_nothing_can_be_written(tmp_path):
    told = message_of(sqlite_url(tmp_path / "missing" / "study.db"))
    assert told.endswith("the file cannot be opened; give a path where this user can write")
    opened = sqlite_url(tmp_path / "study.db")
    close_storage(open_storage(opened))
    told = message_of(f"sqlite:///file:{tmp_path / 'study.db'}?mode=ro&uri=true")
    assert told.endswith("no permission to write there; give a file that this user can write")


def test_a_file_that_is_no_database(tmp_path):
    (tmp_path / "notes.txt").write_text("not a database at all, but long enough to look at " * 50)
    assert "the file is not an SQLite database; give another path" in message_of(sqlite_url(tmp_path / "notes.txt"))


@pytest.mark.parametrize("url", ["nonsense", f"mysql+nothing://me:{SECRET}@db/x"])
def test_what_is_no_url_of_a_database(url):
    assert "is not the URL of a database that Optuna supports; give one like sqlite:///study.db" in message_of(url)


def test_a_database_that_does_not_exist(postgresql):
    told = message_of(postgresql.get_uri("nowhere"))
    assert "the server has no such database; create it with createdb, or correct the URL" in told


def test_a_database_without_the_right_to_write(postgresql, database):
    postgresql.psql("drop role if exists reader; create role reader login;")
    told = message_of(database.replace("postgres:@", f"reader:{SECRET}@"))
    assert told.endswith("no permission to write there; grant the user the right to create tables in it")


def test_a_password_that_the_server_refuses(postgresql, database):
    postgresql.psql("drop role if exists careful; create role careful login password 'right';")
    rules = postgresql.pgdata / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text("local all careful scram-sha-256\n" + before)
    postgresql.psql("select pg_reload_conf();")
    try:
        told = message_of(database.replace("postgres:@", f"careful:{SECRET}@"))
        unsaid = message_of(database.replace("postgres:@", "careful@"))
    finally:
        rules.write_text(before)
        postgresql.psql("select pg_reload_conf();")
    assert told.endswith("the server refuses the password; give the right one, or set PGPASSWORD")
    assert unsaid.endswith("the server requires a password; put it into the URL, or set PGPASSWORD")


@pytest.mark.parametrize(
    ("url", "printed"),
    [
        ("postgresql://me:hunter2@db:5432/x", "postgresql://me:***@db:5432/x"),
        ("postgresql://me@db/x", "postgresql://me@db/x"),
        ("postgresql://me:a:b@c@db/x", "postgresql://me:***@db/x"),
        ("postgresql://me:a/b@db/x", "postgresql://me:***@db/x"),
        ("postgresql://db/x?user=me&password=hunter2", "postgresql://db/x?user=me&password=***"),
        ("sqlite:///a@b.db", "sqlite:///a@b.db"),
    ],
)
def test_an_url_is_printed_without_its_password(url, printed):
    assert shown(url) == printed


def test_both_spellings_of_postgresql_are_understood(database):
    opened = open_storage(database.replace("postgresql://", "postgres://"))
    assert open_study("net", opened, database).study_name == "net"
    close_storage(opened)


def test_machines_of_another_kind_have_a_study_of_their_own_and_that_is_said(storage, monkeypatch):
    run(storage=storage, budget_s=60)
    monkeypatch.setattr("test_search.environment", lambda: environment(cores=64))
    document, runner = run(storage=storage, budget_s=60)
    assert runner.ran, "nothing is taken over"
    (notice,) = [line for line in document.notices if "another kind of machine" in line]
    assert "(a processor, torch 2.13.0): this run does not join it" in notice
    assert not any("continues with" in line for line in said(document))
