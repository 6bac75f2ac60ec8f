"""The duration of calls on a GPU, which runs them asynchronously; a stand-in runs them when it is waited for."""

from types import SimpleNamespace

import pytest
import torch

from autocompile.workload import spans
from autocompile.workload.spans import Spans, when_done

LAUNCH_S = 1e-5


class Gpu:
    """Does its work in turn, each piece in the time that it was given with; launching takes the caller 10 µs."""

    def __init__(self, monkeypatch):
        self.now, self.free, self.in_use, self.capturing, self.waits = 0.0, 0.0, True, False, 0
        gpu = self

        class Event:
            def __init__(self, *, enable_timing):
                assert enable_timing

            def record(self):
                assert not gpu.capturing
                self.at = max(gpu.now, gpu.free)

            def query(self):
                return self.at <= gpu.now

            def synchronize(self):
                gpu.waits += not self.query()
                gpu.now = max(gpu.now, self.at)

            def elapsed_time(self, other):
                return (other.at - self.at) * 1e3

        for name, value in {
            "Event": Event, "is_initialized": lambda: self.in_use, "synchronize": self.wait,
            "is_current_stream_capturing": lambda: self.capturing,
        }.items():  # fmt: skip
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(spans, "_MAY_USE_GPU", True)
        monkeypatch.setattr(spans, "time", SimpleNamespace(perf_counter=lambda: self.now))

    def call(self, seconds):
        self.now += LAUNCH_S
        self.free = max(self.free, self.now) + seconds

    def wait(self):
        assert not self.capturing
        self.waits += 1
        self.now = max(self.now, self.free)


@pytest.fixture
def gpu(monkeypatch):
    return Gpu(monkeypatch)


def called(gpu, count, seconds):
    measured = Spans()
    for _ in range(count):
        began = measured.begin()
        gpu.call(seconds)
        measured.end(began)
    return measured


def test_calls_on_a_gpu_take_what_it_takes_and_not_what_launching_does(gpu):
    measured = called(gpu, 100, 3e-3)
    assert gpu.waits == 0, "nothing is held up"
    assert measured.mean_s == pytest.approx(3e-3, rel=0.01)
    assert measured.count == 100
    assert measured.mean_s == measured.mean_s


def test_not_more_than_so_many_are_remembered(gpu):
    measured = called(gpu, 2 * spans._MOST_PENDING, 3e-3)
    assert len(measured._pending) <= spans._MOST_PENDING
    assert measured.mean_s == pytest.approx(3e-3, rel=0.01)


def test_without_a_gpu_the_clock_tells(gpu):
    gpu.in_use = False
    measured = called(gpu, 10, 3e-3)
    assert measured.mean_s == pytest.approx(LAUNCH_S)
    assert measured.first_s == pytest.approx(LAUNCH_S)
    assert called(gpu, 1, 0.0).mean_s is None
    assert Spans().mean_s is None


def test_what_is_watched_is_waited_for(gpu):
    began = when_done()
    gpu.call(0.5)
    assert when_done() - began == pytest.approx(0.5 + LAUNCH_S)
    gpu.call(0.5)
    gpu.in_use = False
    assert when_done() - began == pytest.approx(0.5 + 2 * LAUNCH_S)


def test_a_script_that_captures_a_graph_itself_is_left_alone(gpu):
    gpu.capturing = True
    assert when_done() == gpu.now
    assert called(gpu, 3, 1.0).mean_s == pytest.approx(LAUNCH_S)
