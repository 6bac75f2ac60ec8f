"""Paired timing, on a clock that only the subjects advance."""

import os
import random
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from autocompile.core.job import Timing
from autocompile.trial.clock import timing
from autocompile.trial.clock.intervals import median_interval
from autocompile.trial.clock.timing import Subject, time_pairs
from autocompile.workload.call import Call
from autocompile.workload.samples import Sample


class Clock:
    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    one = Clock()
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=one.perf_counter))
    monkeypatch.setattr(timing, "HostWatch", QuietWatch)
    return one


class QuietWatch:
    pairs = 0

    def __init__(self, device_type):
        pass

    def begin(self):
        pass

    def disturbed(self):
        QuietWatch.pairs += 1
        return False

    def verdict(self):
        return "quiet"


class NoisyWatch(QuietWatch):
    """Says that every third pair was disturbed."""

    def disturbed(self):
        super().disturbed()
        return QuietWatch.pairs % 3 == 0


def taking(clock, seconds, *, samples=1):
    def call():
        clock.now += seconds() if callable(seconds) else seconds

    return Subject(Call(call), [Sample((), {})] * samples, 1, "cpu")


def test_the_ratio_is_candidate_over_baseline(clock):
    pairs = time_pairs(taking(clock, 0.02), taking(clock, 0.005), Timing(0.05, 10.0), 0)
    assert pairs.ratio.value == pytest.approx(0.25)
    assert pairs.ratio.relative_halfwidth == pytest.approx(0.0, abs=1e-9)
    assert pairs.candidate.p50_ms == pytest.approx(5.0)
    assert pairs.baseline.p99_ms == pytest.approx(20.0)


def test_a_drifting_host_does_not_move_the_ratio(clock):
    def drift():
        return 1 + 0.8 * min(1.0, clock.now / 2.0)

    slow, fast = (lambda: 0.02 * drift()), (lambda: 0.01 * drift())
    pairs = time_pairs(taking(clock, slow), taking(clock, fast), Timing(0.02, 10.0), 1)
    assert pairs.ratio.value == pytest.approx(0.5, rel=0.03)


def test_it_stops_at_the_limit_with_what_it_has(clock):
    flicker = iter(range(10**9))

    def unsteady():
        return 0.01 if next(flicker) % 2 else 0.05

    pairs = time_pairs(taking(clock, 0.03), taking(clock, unsteady), Timing(1e-6, 1.0), 0)
    assert pairs.ratio.low < pairs.ratio.high
    assert clock.now < 2.0


def test_short_calls_are_timed_in_blocks_and_long_ones_singly(clock):
    short = time_pairs(taking(clock, 1e-5), taking(clock, 1e-5), Timing(0.05, 1.0), 0)
    assert short.candidate.p50_ms == pytest.approx(0.01)
    long = time_pairs(taking(clock, 0.2), taking(clock, 0.2, samples=3), Timing(0.05, 20.0), 0)
    assert long.candidate.calls == 3 * long.baseline.calls
    assert long.ratio.value == pytest.approx(3.0)


def test_disturbed_pairs_are_dropped(clock, monkeypatch):
    monkeypatch.setattr(timing, "HostWatch", NoisyWatch)
    QuietWatch.pairs = 0

    def disturbed_sometimes():
        return 1.0 if (QuietWatch.pairs + 1) % 3 == 0 else 0.1

    pairs = time_pairs(taking(clock, 0.1), taking(clock, disturbed_sometimes), Timing(0.01, 60.0), 0)
    assert pairs.ratio.value == pytest.approx(1.0)
    assert pairs.ratio.high == pytest.approx(1.0)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=60))
def test_the_median_lies_within_its_interval(samples):
    interval = median_interval(samples)
    assert interval.low <= interval.value <= interval.high
    assert min(samples) <= interval.low
    assert interval.high <= max(samples)


def test_an_interval_needs_samples():
    with pytest.raises(ValueError, match="no samples"):
        median_interval([])


def test_the_interval_of_a_median_is_scipys():
    generator = np.random.default_rng(0)
    for count in range(1, 120):
        samples = generator.normal(size=count)
        expected = stats.quantile_test(samples, p=0.5).confidence_interval(confidence_level=0.95)
        interval = median_interval(samples.tolist())
        assert interval.low == (samples.min() if np.isnan(expected.low) else expected.low)
        assert interval.high == (samples.max() if np.isnan(expected.high) else expected.high)


def test_the_watch_reads_this_host():
    from autocompile.trial.clock.disturbance import HostWatch

    watch = HostWatch("cpu")
    watch.begin()
    time.sleep(0.05)
    watch.disturbed()
    verdict = watch.verdict()
    assert verdict.blocks == 1
    assert 0 <= verdict.other_cpu_share <= 1
    assert verdict.dropped in (0, 1)


def test_a_timing_that_is_decided_is_ended(clock):
    slow, fast = taking(clock, 0.02), taking(clock, 0.01)
    source = random.Random(0)

    def unsteady():
        return source.uniform(0.02, 0.1)

    behind = time_pairs(fast, taking(clock, unsteady), Timing(1e-6, 60.0, rival=1.5), 0)
    assert behind.decided
    assert clock.now < 10
    ahead = time_pairs(slow, fast, Timing(0.05, 5.0, rival=0.6), 0)
    assert not ahead.decided


class FakeNvml:
    """Enough of pynvml for one GPU that throttles: the processes on it, and which of them compute."""

    NVMLError = RuntimeError

    def __init__(self, running=(), computing=(), reasons=0x20 | 0x1):
        self._answers = {
            "nvmlInit": lambda: None,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda _device: reasons,
            "nvmlDeviceGetComputeRunningProcesses": lambda _device: [SimpleNamespace(pid=pid) for pid in running],
            "nvmlDeviceGetProcessUtilization": lambda _device, _since: self._samples(computing),
        }

    def _samples(self, computing):
        if computing is None:
            raise self.NVMLError("not supported")
        return [SimpleNamespace(pid=pid, smUtil=percent) for pid, percent in computing.items()]

    def __getattr__(self, name):
        return self._answers[name]


def test_a_gpu_that_throttles_or_is_shared_is_noisy(monkeypatch):
    from autocompile.trial.clock import disturbance, nvml

    own = os.getpid()
    monkeypatch.setattr(nvml, "pynvml", FakeNvml({own, 999_999}, {own: 90, 999_999: 40}))
    monkeypatch.setattr(nvml, "_handle", lambda: "gpu")
    watch = disturbance.HostWatch("cuda")
    watch.begin()
    assert watch.disturbed()
    verdict = watch.verdict()
    assert verdict.noisy
    assert verdict.throttled == "heat"
    assert verdict.gpu_processes == 1


@pytest.mark.parametrize(
    ("running", "computing", "others"),
    [
        ({"own", 7}, {"own": 90}, 0),  # process 7 has a context, but is idle
        ({"own", 7}, {"own": 90, 7: 3}, 1),
        ({41, 42}, {41: 90}, 0),  # process numbers of the host: one of them is this process
        ({41, 42}, {41: 90, 42: 10}, 1),
        ({41}, None, 0),  # the driver reports no utilization
        ({"own"}, {"own": 90, 0: 7, 12: 2**32 - 1}, 0),  # invalid entries: process 0, and an impossible utilization
    ],
)
def test_only_others_that_compute_on_a_gpu_count(monkeypatch, running, computing, others):
    from autocompile.trial.clock import nvml

    own = os.getpid()
    told = None if computing is None else {own if pid == "own" else pid: share for pid, share in computing.items()}
    fake = FakeNvml({own if pid == "own" else pid for pid in running}, told, reasons=0)
    monkeypatch.setattr(nvml, "pynvml", fake)
    monkeypatch.setattr(nvml, "_handle", lambda: "gpu")
    assert nvml.GpuWatch().other_processes() == others


def watched(monkeypatch, device_type, *, others_s, waited_s, cores=16):
    """The verdict over one second of `cores` CPUs, of which others took so much, and the process waited so long."""
    from autocompile.trial.clock import disturbance

    waits = (None, None) if waited_s is None else (5.0, 5.0 + waited_s)
    before = disturbance.CpuTimes(100.0 * cores, 50.0, 0.0, 10.0, 0, at_s=7.0, waited_s=waits[0])
    after = disturbance.CpuTimes(101.0 * cores, 51.0 + others_s, 0.0, 11.0, 0, at_s=8.0, waited_s=waits[1])
    taken = iter((before, before, after, after))
    monkeypatch.setattr(disturbance, "cpu_times", lambda _descendants: next(taken))
    monkeypatch.setattr(disturbance, "GpuWatch", IdleGpu)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    watch = disturbance.HostWatch(device_type)
    watch.begin()
    watch.disturbed()
    return watch.verdict()


class IdleGpu:
    """A GPU that nobody else uses."""

    def throttled(self):
        return ""

    def other_processes(self):
        return 0


@pytest.mark.parametrize(
    ("device_type", "others_s", "waited_s", "noisy"),
    [
        ("cpu", 8.0, 0.0, True),  # half of the CPUs are busy
        ("cuda", 8.0, 0.0, False),  # launching kernels on the other CPUs is not disturbed
        ("cuda", 0.5, 0.5, True),  # few CPUs are busy, but they are the ones that this process may use
        ("cuda", 8.0, None, False),  # waiting time unknown: two cores are left
        ("cuda", 15.0, None, True),
    ],
)
def test_a_gpus_process_is_disturbed_by_what_it_feels(monkeypatch, device_type, others_s, waited_s, noisy):
    verdict = watched(monkeypatch, device_type, others_s=others_s, waited_s=waited_s)
    assert (verdict.noisy, verdict.dropped) == (noisy, int(noisy))
    assert verdict.waited_share == (waited_s if device_type == "cuda" else None)


def test_what_descendants_take_is_not_what_others_take():
    from autocompile.trial.clock import disturbance

    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            child = psutil.Process(busy.pid)
            while sum(child.cpu_times()[:2]) < 0.1:
                time.sleep(0.01)
            alone, together = disturbance.cpu_times(), disturbance.cpu_times([child])
        finally:
            busy.kill()
    assert together.own_s - alone.own_s > 0.05
    assert disturbance.cpu_times([child]).own_s >= alone.own_s, "one that has ended takes nothing any more"


def test_how_long_a_process_waited_for_a_cpu_is_read_of_all_its_threads(monkeypatch, tmp_path):
    from autocompile.trial.clock import disturbance

    monkeypatch.setattr(disturbance, "_TASKS", tmp_path)
    assert disturbance.cpu_times().waited_s is None, "a system that does not tell"
    for thread, account in (("11", "900 2000000000 5"), ("12", "100 500000000 3"), ("ended", None)):
        (tmp_path / thread).mkdir()
        if account:
            (tmp_path / thread / "schedstat").write_text(f"{account}\n")
    assert disturbance.cpu_times().waited_s == 2.5


@pytest.mark.parametrize("known", ["GPU-1a2b", "MIG-1a2b"])
@pytest.mark.parametrize("prefix", ["", "GPU-", "MIG-"])
def test_a_gpu_and_a_slice_of_one_are_found_by_the_uuid_that_torch_tells(monkeypatch, known, prefix):
    from autocompile.trial.clock import nvml

    class Nvml:
        NVMLError = RuntimeError

        def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802  as NVML calls it
            if uuid != known:
                raise self.NVMLError("Not Found")
            return uuid

    monkeypatch.setattr(nvml, "pynvml", Nvml())
    monkeypatch.setattr(nvml.torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(nvml.torch.cuda, "get_device_properties", lambda _number: SimpleNamespace(uuid=f"{prefix}1a2b"))
    assert nvml._handle() == known


def test_without_nvml_a_gpu_is_not_called_noisy(monkeypatch):
    from autocompile.trial.clock import nvml

    def missing():
        raise nvml.pynvml.NVMLError(nvml.pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(nvml.pynvml, "nvmlInit", missing)
    watch = nvml.GpuWatch()
    assert (watch.throttled(), watch.other_processes()) == ("", 0)
