"""The heap's thresholds: said in the snippet, set where nobody else has set them."""

import os
import platform
import subprocess
import sys

import pytest

from autocompile import heap

GLIBC = platform.libc_ver()[0] == "glibc"
# A block below 32 MiB that is freed and asked for again: with settled thresholds, its pages stay.
FAULTS = """
import resource
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        block = bytearray(100_000)
        other = b"x" * 24_000_000
        del block, other
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""
SETTLED = "from autocompile.heap import settle_heap\nassert settle_heap()"


@pytest.mark.skipif(not GLIBC, reason="mallopt is glibc's")
@pytest.mark.parametrize("settled", [SETTLED, "\n".join(heap.heap_lines())], ids=["called", "pasted"])
def test_what_is_freed_is_kept(settled):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    code = f"{settled}\n{FAULTS}"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100  # each of 10 blocks of 24 MB has 5,860 pages


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
