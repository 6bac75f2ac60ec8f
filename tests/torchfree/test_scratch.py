"""Temporary directories end with their owner, and the next run removes those of a killed process."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from autocompile.scratch import OWNER, PREFIX, Scratch, claim, sweep

MAKES_ONE = """
import sys
from autocompile.scratch import Scratch
scratch = Scratch()
scratch.put({"deep/file": b"x"})
print(scratch.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """The system's temporary directory, for this process and those that it starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@pytest.fixture
def other():
    """Another process that has made a directory; and where that is."""
    process = subprocess.Popen([sys.executable, "-c", MAKES_ONE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    yield process, Path(process.stdout.readline().decode().strip())
    process.kill()
    process.communicate()


def test_it_is_private_and_gone_when_it_is_closed_or_forgotten(temporary):
    with Scratch() as directory:
        assert directory.parent == temporary
        assert directory.stat().st_mode & 0o77 == 0
        (directory / "file").write_text("x")
    assert not directory.exists()
    forgotten = Scratch()
    forgotten.put({"a/b": b"c"})
    path = forgotten.path
    assert (path / "a" / "b").read_bytes() == b"c"
    del forgotten
    assert not path.exists()
    assert list(temporary.iterdir()) == []


def test_a_living_process_keeps_its_own_and_a_normal_end_leaves_nothing(other, temporary):
    process, path = other
    mine = Scratch()
    sweep()
    assert (path / "deep" / "file").exists()
    assert mine.path.exists()
    process.communicate(b"")
    assert list(temporary.iterdir()) == [mine.path]


def test_what_a_killed_process_left_is_removed(other):
    process, path = other
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (path / "deep" / "file").exists()
    sweep()
    assert not path.exists()


def test_what_is_not_known_as_its_own_is_left_alone(temporary):
    (temporary / f"{PREFIX}of-somebody").mkdir()
    (temporary / f"{PREFIX}file").write_text("x")
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / OWNER).write_text("")
    (temporary / f"{PREFIX}link").symlink_to(elsewhere)
    before = sorted(temporary.rglob("*"))
    sweep()
    assert sorted(temporary.rglob("*")) == before


def test_links_are_removed_and_not_what_they_point_to(temporary):
    kept = temporary / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    with Scratch() as directory:
        (directory / "link").symlink_to(kept)
    assert not directory.exists()
    assert (kept / "file").exists()


def test_a_forked_child_removes_nothing():
    with Scratch() as directory:
        code = "import os, sys; from autocompile.scratch import Scratch; one = Scratch(); pid = os.fork()\n"
        code += "sys.exit(0) if pid == 0 else os.waitpid(pid, 0); print(one.path.exists())"
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert ran.stdout.strip() == "True"
        assert directory.exists()


def test_a_file_has_one_owner_at_a_time(tmp_path):
    first = claim(tmp_path / "owner")
    assert claim(tmp_path / "owner") is None
    os.close(first)
    again = claim(tmp_path / "owner")
    assert again is not None
    os.close(again)
