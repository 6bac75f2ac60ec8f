"""The thresholds of the heap: shown in the snippet, and set only if nothing else has set them."""

import os
import platform
import subprocess
import sys

import pytest

from autocompile import heap

GLIBC = platform.libc_ver()[0] == "glibc"
# Like the temporaries of a model: six blocks of 1 MB, freed and allocated again; each has 244 pages.
FAULTS = """
import resource
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        blocks = [b"x" * 1_000_000 for _ in range(6)]
        del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""
SETTLED = "from autocompile.heap import settle_heap\nassert settle_heap()"


def faults_after(code):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", f"{code}\n{FAULTS}"]
    return int(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(not GLIBC, reason="mallopt is glibc's")
@pytest.mark.parametrize("settled", [SETTLED, "\n".join(heap.heap_lines())], ids=["called", "pasted"])
def test_what_is_freed_is_kept(settled):
    assert faults_after("") > 1000
    assert faults_after(settled) < 100


@pytest.mark.parametrize(
    ("name", "value"), [("MALLOC_TRIM_THRESHOLD_", "1000000"), ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=1")]
)
def test_a_users_own_setting_stays(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert not heap.settle_heap()


@pytest.mark.skipif(not GLIBC, reason="mallopt is glibc's")
def test_what_is_not_about_keeping_does_not_matter():
    environment = {**os.environ, "MALLOC_ARENA_MAX": "2"}
    code = "from autocompile.heap import settle_heap; print(settle_heap())"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(heap.platform, "libc_ver", lambda: ("musl", "1.2"))
    assert not heap.settle_heap()
    assert heap.heap_lines() == []
