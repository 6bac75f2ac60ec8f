"""Files that a script writes while it is watched are redirected: the user's files do not change."""

import bz2
import csv
import glob
import gzip
import hashlib
import io
import json
import logging
import multiprocessing
import os
import posix
import shelve
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import threading
import zipfile
from contextlib import chdir, closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autocompile.workload.watching.files import writes_kept_in


def lay_out(directory):
    """A user's directory: files, directories in one another, links, one that is read-only."""
    (directory / "deep" / "deeper").mkdir(parents=True)
    (directory / "empty").mkdir()
    for name in ("a", "b", "deep/c", "deep/deeper/d"):
        (directory / name).write_text(f"the user's {name}\n")
    (directory / "link").symlink_to("a")
    (directory / "way").symlink_to("deep")
    (directory / "shared.db").write_bytes(b"")
    with closing(sqlite3.connect(directory / "shared.db")) as base:
        base.execute("create table t (x)")


def digest(directory):
    """Of all that is in a directory: names, kinds, modes, times, targets, contents."""
    found = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        found.update(repr((str(path.relative_to(directory)), status.st_mode, status.st_mtime_ns)).encode())
        found.update(os.readlink(path).encode() if path.is_symlink() else b"")
        found.update(path.read_bytes() if path.is_file() and not path.is_symlink() else b"")
    return found.hexdigest()


@pytest.fixture
def project(tmp_path, monkeypatch):
    directory = tmp_path / "project"
    directory.mkdir()
    lay_out(directory)
    monkeypatch.chdir(directory)
    before = digest(directory)
    yield directory
    assert digest(directory) == before


@pytest.fixture
def kept(project, tmp_path):
    with writes_kept_in(tmp_path / "scratch") as kept:
        yield kept


def by_open():
    with open("out/new", "w") as file:
        file.write("1")
    with open("out/new", "a") as file:
        file.write("2")
    with open("out/new", "r+") as file:
        file.write("3")
    with open("a", "a") as file:
        file.write("more")
    with open("b", "w") as file:
        file.write("less")
    with open("out/only", "x") as file, pytest.raises(FileExistsError):
        open("deep/c", "x")
    assert file.name == "out/only"
    assert [Path(name).read_text() for name in ("out/new", "a", "b")] == ["32", "the user's a\nmore", "less"]


def by_descriptor():
    descriptor = os.open("a", os.O_RDWR)
    os.write(descriptor, b"THE")
    os.close(descriptor)
    inside = os.open("deep", os.O_RDONLY)
    os.close(os.open("new", os.O_CREAT | os.O_WRONLY, dir_fd=inside))
    os.unlink("c", dir_fd=inside)
    assert sorted(os.listdir(inside)) == sorted(os.listdir("deep")) == ["deeper", "new"]
    os.close(inside)
    assert Path("a").read_text() == "THE user's a\n"


def by_pathlib():
    Path("out/x").write_bytes(b"x")
    Path("out/x").rename("out/y")
    Path("out/y").replace("deep/c")
    Path("out/touched").touch()
    Path("deep/deeper/d").unlink()
    Path("deep/deeper").rmdir()
    Path("more/and/more").mkdir(parents=True)
    Path("a").chmod(0o600)
    assert Path("a").stat().st_mode & 0o777 == 0o600
    assert sorted(map(str, Path("deep").rglob("*"))) == ["deep/c"]
    assert Path("deep/c").read_bytes() == b"x"
    assert not Path("deep/deeper/d").exists()


def by_shutil():
    shutil.copy2("a", "out/a")
    shutil.copytree("deep", "out/deep")
    shutil.move("deep", "out/moved")
    shutil.rmtree("out/deep")
    shutil.move("a", "renamed")
    shutil.rmtree("empty")
    shutil.make_archive("out/all", "gztar", "out/moved")
    shutil.unpack_archive("out/all.tar.gz", "out/again")
    found = Path("out/moved/deeper/d"), Path("out/again/deeper/d"), Path("renamed")
    assert [path.read_text() for path in found] == ["the user's deep/deeper/d\n"] * 2 + ["the user's a\n"]
    assert [os.path.exists(name) for name in ("deep", "deep/c", "a", "empty", "out/deep")] == [False] * 5


def by_links():
    os.symlink(os.path.abspath("b"), "out/to_b")
    Path("out/to_b").write_text("through the link")
    Path("link").write_text("through the user's link")
    Path("way/through").write_text("through a directory's")
    os.link("deep/c", "out/second")
    with open("out/second", "a") as file:
        file.write("both")
    assert Path("b").read_text() == "through the link"
    assert Path("a").read_text() == "through the user's link"
    assert Path("deep/through").read_text() == "through a directory's"
    assert Path("deep/c").read_text() == "the user's deep/c\nboth"
    assert os.readlink("link") == "a"
    assert os.path.realpath("way/through") == os.path.abspath("deep/through")


def by_times_and_lengths():
    os.utime("a", (1, 2))
    os.truncate("b", 3)
    assert (os.stat("a").st_mtime, os.path.getsize("b")) == (2, 3)


def by_formats():
    with open("out/rows.csv", "w", newline="") as file:
        csv.writer(file).writerows([[1, 2], [3, 4]])
    Path("out/x.json").write_text(json.dumps({"a": 1}))
    np.save("out/array.npy", np.arange(3))
    np.arange(3).tofile("out/raw")
    mapped = np.memmap("out/mapped", dtype="u1", mode="w+", shape=(3,))
    mapped[:] = 7
    mapped.flush()
    for module in (gzip, bz2):
        with module.open("out/packed", "wb") as file:
            file.write(b"z")
        with module.open("out/packed") as file:
            assert file.read() == b"z"
    with zipfile.ZipFile("out/x.zip", "w") as archive:
        archive.write("a")
    with zipfile.ZipFile("out/x.zip") as archive:
        archive.extractall("out/unzipped")
    with tarfile.open("out/x.tar", "w") as archive:
        archive.add("deep")
    assert np.load("out/array.npy").tolist() == np.fromfile("out/raw", dtype=int).tolist() == [0, 1, 2]
    assert Path("out/mapped").read_bytes() == b"\7\7\7"
    assert Path("out/unzipped/a").read_text() == "the user's a\n"
    assert tarfile.is_tarfile("out/x.tar")
    assert json.loads(Path("out/x.json").read_text()) == {"a": 1}
    assert Path("out/rows.csv").read_text().split() == ["1,2", "3,4"]


def by_databases():
    for name in ("shared.db", f"file:{os.path.abspath('shared.db')}?mode=rw", "out/new.db"):
        with closing(sqlite3.connect(name, uri=name.startswith("file:"))) as base, base:
            base.execute("create table if not exists t (x)")
            base.execute("insert into t values (1)")
    with closing(sqlite3.connect("file:shared.db?mode=ro", uri=True)) as base:
        assert base.execute("select count(*) from t").fetchone() == (2,)
    with closing(sqlite3.connect(":memory:")) as base:
        base.execute("select 1")
    with shelve.open("out/shelf") as shelf:
        shelf["key"] = [1]
    with shelve.open("out/shelf") as shelf:
        assert shelf["key"] == [1]


def by_a_log():
    handler = logging.FileHandler("out/run.log")
    handler.emit(logging.LogRecord("x", logging.INFO, "", 0, "said", (), None))
    handler.close()
    assert Path("out/run.log").read_text() == "said\n"


def by_modules():
    Path("made_by_the_script.py").write_text("value = 3")
    sys.path.insert(0, os.getcwd())
    try:
        import made_by_the_script

        assert made_by_the_script.value == 3
    finally:
        sys.path.remove(os.getcwd())
        sys.modules.pop("made_by_the_script", None)


def by_temporary_files():
    with tempfile.NamedTemporaryFile("w", dir="out", delete=False) as file, tempfile.TemporaryFile(dir="deep"):
        file.write("x")
    assert os.listdir("out") == [os.path.basename(file.name)]
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "x").write_text("y")


def by_captured_names():
    """What a module of the standard library has imported by name, before there was anything to watch."""
    assert tarfile.bltn_open is open
    assert bz2._builtin_open is open


def by_numpy():
    np.savetxt("out/table", np.arange(3.0))
    np.savetxt("a", np.ones(2))
    with gzip.open("out/packed.gz", "wt") as file:
        file.write("1 2\n")
    for read in (np.loadtxt, np.genfromtxt):
        assert read("out/table").tolist() == [0, 1, 2]
        assert read("a").tolist() == [1, 1]
        assert read("out/packed.gz").tolist() == [1, 2]


def in_another_directory():
    os.makedirs("out/run")
    with chdir("out/run"):
        Path("rel").write_text("x")
        assert os.getcwd() == str(Path.cwd())
        assert os.getcwd().endswith("project/out/run")
        assert os.path.abspath("rel").endswith("project/out/run/rel")
        assert Path("../../a").read_text() == "the user's a\n"
    with chdir("deep"):
        Path("rel").write_text("y")
        assert sorted(entry.name for entry in os.scandir()) == ["c", "deeper", "rel"]
    assert Path("out/run/rel").read_text() == "x"
    assert Path("deep/rel").read_text() == "y"


WAYS = [
    by_open,
    by_descriptor,
    by_pathlib,
    by_shutil,
    by_links,
    by_times_and_lengths,
    by_formats,
    by_databases,
    by_a_log,
    by_modules,
    by_temporary_files,
    by_captured_names,
    by_numpy,
    in_another_directory,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_is_written_is_read_back_and_changes_nothing_of_the_users(kept, way):
    os.mkdir("out")
    way()


def test_a_listing_has_what_is_there_for_the_script(kept):
    Path("new").write_text("n")
    os.remove("a")
    os.mkdir("made")
    there = ["b", "deep", "empty", "link", "made", "new", "shared.db", "way"]
    assert sorted(os.listdir()) == sorted(glob.glob("*")) == sorted(path.name for path in Path().iterdir()) == there
    assert sorted(os.listdir(os.fsencode(os.getcwd()))) == [os.fsencode(name) for name in there]
    with os.scandir(".") as entries:
        kinds = {entry.path: (entry.is_dir(), entry.is_file(), entry.is_symlink()) for entry in entries}
    assert kinds["./new"] == (False, True, False)
    assert kinds["./way"] == (True, False, True)
    assert kinds["./link"] == (False, False, True)
    assert next(names for _, names, _ in os.walk(".")) == [n for n in os.listdir() if os.path.isdir(n)]


def test_a_directory_made_anew_has_none_of_the_old_ones_files(kept):
    shutil.rmtree("deep")
    os.makedirs("deep/deeper")
    assert list(Path("deep").rglob("*")) == [Path("deep/deeper")]
    with pytest.raises(FileNotFoundError) as raised:
        open("deep/deeper/d")
    assert raised.value.filename == "deep/deeper/d"


def test_errors_are_those_of_the_users_paths(kept, tmp_path):
    for fails in (
        lambda: open("none/new", "w"),
        lambda: open("none"),
        lambda: os.mkdir("a"),
        lambda: os.rmdir("deep"),
        lambda: os.remove("none"),
        lambda: os.listdir("a"),
        lambda: open("a/b", "w"),
        lambda: open("deep", "w"),
        lambda: os.rename("deep", "deep/deeper/deep"),
    ):
        with pytest.raises(OSError, match=r"\[Errno") as raised:
            fails()
        assert str(tmp_path / "scratch") not in str(raised.value)
        assert not Path(str(raised.value.filename)).is_absolute()


def test_what_leads_past_the_view_is_refused(kept):
    file = open("a")
    for way in (
        lambda: io.FileIO("a", "w"),
        lambda: io.FileIO("new", "x"),
        lambda: sqlite3.Connection("shared.db"),
        lambda: os.fchmod(file.fileno(), 0o600),
    ):
        with pytest.raises(PermissionError, match="only being watched"):
            way()
    file.close()
    with io.FileIO("a") as file:
        assert file.read() == b"the user's a\n"


def test_reading_copies_nothing(kept):
    with open("a") as file:
        assert file.read() == Path("link").read_text() == "the user's a\n"
    assert os.path.exists("deep/c")
    assert sorted(os.listdir("way")) == ["c", "deeper"]
    assert kept.written() == ()
    Path("deep/c").write_text("x")
    assert kept.written() == (Path.cwd() / "deep/c",)
    assert kept.where("a") == Path.cwd() / "a"
    assert kept.where("deep/c") != Path.cwd() / "deep/c"


def test_forked_processes_see_each_others_files(kept):
    def work():
        Path("out").write_text(Path("before").read_text() + Path("a").read_text())
        os.remove("b")

    Path("before").write_text("from the parent, ")
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    assert process.exitcode == 0
    assert Path("out").read_text() == "from the parent, the user's a\n"
    assert not os.path.exists("b")


def test_threads_may_write_to_one_file(kept):
    def write(number):
        with open("a", "a") as file:
            file.write(f"{number}\n")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(Path("a").read_text().split("\n")[1:-1]) == sorted(map(str, range(8)))


def test_other_programs_are_noted(kept):
    assert kept.notes == ()
    subprocess.run([sys.executable, "-c", "print(open('a').read())"], check=True, stdout=subprocess.DEVNULL)
    os.system("true")
    (note,) = kept.notes
    assert note.startswith("the script starts other programs")
    assert note.endswith(f"{os.path.basename(sys.executable)}, true")


def test_free_directories_are_written_as_they_are(project, tmp_path):
    for name in ("cache", "mine"):
        (tmp_path / name).mkdir()
    with writes_kept_in(tmp_path / "scratch", free=[tmp_path / "cache"], guarded=[tmp_path / "mine"]) as kept:
        (tmp_path / "cache" / "x").write_text("x")
        (tmp_path / "mine" / "x").write_text("x")
        os.replace(tmp_path / "cache" / "x", "from_the_cache")
        shutil.copy("a", tmp_path / "cache" / "a")
        Path("/dev/null").write_text("nothing")
        assert len(kept.written()) == 2
    assert os.listdir(tmp_path / "cache") == ["a"]
    assert os.listdir(tmp_path / "mine") == []


def test_afterwards_all_is_as_it_was(project, tmp_path):
    known = {module: dict(vars(module)) for module in (os, posix, io, shutil, tarfile, bz2, sqlite3)}
    opened, follows = open, set(os.supports_follow_symlinks)
    with writes_kept_in(tmp_path / "scratch"):
        from os import listdir

        assert open is not opened
        assert os.stat in os.supports_follow_symlinks
        os.mkdir("out")
        os.chdir("out")
        with pytest.raises(RuntimeError, match="being redirected already"), writes_kept_in(tmp_path / "other"):
            pass
    assert open is opened
    assert {module: dict(vars(module)) for module in known} == known
    assert os.supports_follow_symlinks == follows
    assert Path.cwd() == project
    assert "out" not in listdir()
    own = io.FileIO(tmp_path / "afterwards", "w")
    own.close()
    assert (tmp_path / "afterwards").exists()


NAMES = st.sampled_from(
    [
        *("a", "b", "deep", "deep/c", "deep/deeper", "deep/deeper/d", "new", "deep/new", "new/x", "link", "way"),
        *("way/c", "way/deeper/d", "empty", "empty/new", "./deep/../a", "deep/deeper/../c"),
    ]
)


def put(path, mode, text):
    with open(path, mode) as file:
        file.write(text)


def scan(path):
    with os.scandir(path) as entries:
        return sorted((e.name, e.path, e.is_dir(), e.is_file(), e.is_symlink()) for e in entries)


OPERATIONS = {
    "write": lambda path, _: Path(path).write_text("written"),
    "append": lambda path, _: put(path, "a", "appended"),
    "update": lambda path, _: put(path, "r+", "up"),
    "new": lambda path, _: put(path, "x", "new"),
    "read": lambda path, _: Path(path).read_text(),
    "list": lambda path, _: sorted(os.listdir(path)),
    "scan": lambda path, _: scan(path),
    "exists": lambda path, _: (os.path.exists(path), os.path.lexists(path), os.path.isdir(path)),
    "real": lambda path, _: os.path.relpath(os.path.realpath(path)),
    "mkdir": lambda path, _: os.mkdir(path),
    "makedirs": lambda path, _: os.makedirs(path, exist_ok=True),
    "rmdir": lambda path, _: os.rmdir(path),
    "remove": lambda path, _: os.remove(path),
    "rmtree": lambda path, _: shutil.rmtree(path),
    "rename": lambda *paths: os.rename(*paths),
    "copy": lambda path, other: bool(shutil.copy(path, other)),
    "symlink": lambda path, other: os.symlink(os.path.relpath(path, os.path.dirname(other) or "."), other),
    "absolute symlink": lambda path, other: os.symlink(os.path.abspath(path), other),
    "link": lambda *paths: os.link(*paths),
    "truncate": lambda path, _: os.truncate(path, 2),
    "chmod": lambda path, _: os.chmod(path, 0o700),
}


def run(operations):
    """What each gives, or the kind of its error; and all that is there in the end."""
    results = []
    for name, path, other in operations:
        try:
            results.append((name, path, other, OPERATIONS[name](path, other)))
        except OSError as problem:
            results.append((name, path, other, type(problem).__name__))
    end = {}
    for where, directories, files in os.walk("."):
        for name in directories + files:
            path = os.path.join(where, name)
            status = os.lstat(path)
            content = Path(path).read_text() if name in files and os.path.isfile(path) and name != "shared.db" else ""
            end[path] = (status.st_mode, os.path.islink(path), content)
    return results, end


@settings(
    max_examples=40,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(operations=st.lists(st.tuples(st.sampled_from(sorted(OPERATIONS)), NAMES, NAMES), max_size=12))
def test_any_sequence_of_operations_gives_what_it_gives_in_a_copy(operations, tmp_path_factory):
    place = tmp_path_factory.mktemp("place")
    for name in ("plain", "watched"):
        (place / name).mkdir()
        lay_out(place / name)
    with chdir(place / "plain"):
        expected = run(operations)
    with chdir(place / "watched"):
        before = digest(place / "watched")
        with writes_kept_in(place / "scratch"):
            found = run(operations)
        assert digest(place / "watched") == before
    shutil.rmtree(place)
    assert found == expected
