"""The single lane of a local runner: order, limits, and that nothing keeps running, even with many tasks."""

import time
from collections import deque

import pytest

from autocompile.core.errors import RunnerError
from autocompile.core.job import Limits, ToolchainTask
from autocompile.core.outcome import Failure, Toolchain
from autocompile.core.protocol import JOB_FILE, REPLY_FILE
from autocompile.core.serde import to_json
from autocompile.runner.course import Course
from autocompile.runner.local import LocalRunner

TASK, AMPLE = ToolchainTask("cpu"), Limits(60.0)


class Scripted:
    """A launcher whose children do as they are told: `ends`, `stays`, `lost`, or an exception to raise meanwhile."""

    def __init__(self, *children):
        self.children = deque(children)
        self.started, self.killed = [], []
        self.running = None
        self.events = deque()

    def start(self, directory):
        assert self.running is None, "one child at a time"
        assert (directory / JOB_FILE).exists()
        child = self.children.popleft()
        if isinstance(child, RunnerError):
            raise child
        self.started.append(directory.name)
        self.running, self.child = directory.name, child
        self.events.append({"phase": "toolchain"})
        if child == "ends":
            reply = Toolchain(float(directory.name.split("-")[0]), "AVX2")
            (directory / REPLY_FILE).write_bytes(to_json(reply))
            self.events.append({"exited": 0})
        elif child == "lost":
            self.events.append({"exited": -9, "lost": True})

    def next_event(self, timeout_s):
        if not self.events:
            if isinstance(getattr(self, "child", None), BaseException):
                raise self.child
            time.sleep(min(timeout_s, 0.01))
            return None
        event = self.events.popleft()
        if "exited" in event:
            self.running = None
        return {**event, "at": time.monotonic()}

    def kill(self):
        if self.running:
            self.killed.append(self.running)
            self.events.append({"exited": -9})

    def preload(self, modules, search_path):
        pass

    def close(self):
        pass


@pytest.fixture
def runner_with(tmp_path):
    runners = []

    def runner(*children):
        launcher = Scripted(*children)
        runners.append(LocalRunner(tmp_path / "jobs", tmp_path / "seed", launch=lambda _name: launcher))
        return runners[-1], launcher

    yield runner
    for made in runners:
        made.close()


def submit(runner, limits=AMPLE, cache="some"):
    return runner.submit(TASK, limits, cache=cache, exclusive=False)


def test_a_second_task_waits_for_its_turn(runner_with):
    runner, launcher = runner_with("ends", "ends")
    first, second = submit(runner), submit(runner)
    assert launcher.started == ["0001"]
    assert second.answer() == Toolchain(2.0, "AVX2")
    assert first.is_done()
    assert first.answer() == first.answer() == Toolchain(1.0, "AVX2")
    assert first.span_s[0] < first.span_s[1] <= second.span_s[0] < second.span_s[1]
    assert launcher.killed == []


def test_who_is_done_first_is_told(runner_with):
    runner, _launcher = runner_with("ends", "ends", "stays")
    first, second, third = submit(runner), submit(runner), submit(runner)
    assert runner.first_done([third, second, first]) is first
    assert runner.first_done([third, second]) is second
    assert not third.is_done()


def test_a_task_that_is_lost_with_the_process_that_started_it_is_repeated_before_others(runner_with, tmp_path):
    runner, launcher = runner_with("stays", "lost", "ends", "ends")
    before, lost, other = submit(runner), submit(runner, cache="new"), submit(runner)
    before.cancel()
    half_filled = tmp_path / "jobs" / "caches" / "new" / "left"
    half_filled.write_text("by the first child")
    assert other.answer() == Toolchain(3.0, "AVX2")
    assert lost.answer() == Toolchain(2.0, "AVX2")
    assert launcher.started == ["0001", "0002", "0002-again", "0003"]
    assert not half_filled.exists()


def test_a_task_that_is_lost_twice_has_failed(runner_with):
    runner, launcher = runner_with("lost", "lost", "ends")
    lost, other = submit(runner), submit(runner)
    assert isinstance(lost.answer(), Failure)
    assert other.answer() == Toolchain(2.0, "AVX2")
    assert launcher.started == ["0001", "0001-again", "0002"]


def test_a_cache_is_made_when_its_turn_comes(runner_with, tmp_path):
    runner, _launcher = runner_with("ends", "ends")
    toolchain, trial = submit(runner, cache="toolchain"), submit(runner, cache="trial")
    left = tmp_path / "seed" / "inductor"
    left.mkdir()
    (left / "probes").write_text("what the compiler check leaves")
    (left / "fxgraph").write_text("what it leaves of a program")
    for name in ("ABC/cuda_utils.cpython-311-x86_64-linux-gnu.so", "DEF/kernel.cubin", "GHI/__triton_launcher.so"):
        file = left / "triton" / name
        file.parent.mkdir(parents=True)
        file.write_text("what Triton leaves of itself and of kernels")
    (tmp_path / "seed" / "precompiled_headers").mkdir()
    others = tmp_path / "seed" / "eager"
    others.mkdir()
    (others / "program").write_text("of a runtime whose whole cache is for programs")
    cache = tmp_path / "jobs" / "caches" / "trial"
    assert not cache.exists()
    toolchain.answer()
    assert sorted(path.relative_to(cache).as_posix() for path in cache.rglob("*") if path.is_file()) == [
        "inductor/probes",
        "inductor/triton/ABC/cuda_utils.cpython-311-x86_64-linux-gnu.so",
    ]
    assert not (cache / "precompiled_headers").exists()
    trial.answer()


def test_limits_count_from_the_turn_and_end_that_one_alone(runner_with):
    runner, launcher = runner_with("ends", "stays", "ends")
    first, second, third = submit(runner), submit(runner, Limits(0.1)), submit(runner, Limits(0.1))
    time.sleep(0.15)
    assert isinstance(first.answer(), Toolchain)
    ended = second.answer()
    assert isinstance(ended, Failure)
    assert (ended.kind, ended.stage) == ("timeout", "toolchain")
    assert launcher.killed == ["0002"]
    assert isinstance(third.answer(), Toolchain)


def test_looking_does_not_wait(runner_with):
    runner, _launcher = runner_with("stays")
    pending = submit(runner)
    began = time.monotonic()
    assert not pending.is_done()
    assert time.monotonic() - began < 5.0


def test_ctrl_c_leaves_nothing_running_whatever_was_under_way(runner_with):
    runner, launcher = runner_with(KeyboardInterrupt(), "ends", "ends")
    first, second = submit(runner), submit(runner)
    with pytest.raises(KeyboardInterrupt):
        second.answer()
    assert launcher.killed == launcher.started == ["0001"]
    for pending in (first, second):
        assert pending.is_done()
        with pytest.raises(RunnerError, match="ended with all others"):
            pending.answer()


def test_a_ctrl_c_that_was_dropped_ends_what_runs_at_the_next_task(runner_with):
    runner, launcher = runner_with("stays", "ends")
    submit(runner)
    runner._interrupts._came = True
    with pytest.raises(KeyboardInterrupt):
        submit(runner)
    assert launcher.killed == launcher.started == ["0001"]


def test_the_end_of_a_runner_ends_what_runs(runner_with):
    runner, launcher = runner_with("stays", "ends")
    pending = submit(runner), submit(runner)
    runner.close()
    assert launcher.killed == launcher.started == ["0001"]
    assert all(one.is_done() for one in pending)


def test_what_is_cancelled_makes_room_for_the_others(runner_with):
    runner, launcher = runner_with("stays", "ends")
    first, second, third = submit(runner), submit(runner), submit(runner)
    second.cancel()
    first.cancel()
    assert isinstance(third.answer(), Toolchain)
    third.cancel()
    assert isinstance(third.answer(), Toolchain), "what has ended stays as it is"
    assert launcher.started == ["0001", "0003"]
    assert launcher.killed == ["0001"]
    for pending in (first, second):
        with pytest.raises(RunnerError, match="was cancelled"):
            pending.answer()


def test_a_child_that_cannot_be_started_is_told_to_whom_it_concerns(runner_with):
    runner, launcher = runner_with("ends", RunnerError("no memory to fork"), "ends")
    first, second, third = submit(runner), submit(runner), submit(runner)
    assert isinstance(first.answer(), Toolchain)
    with pytest.raises(RunnerError, match="no memory to fork"):
        second.answer()
    assert isinstance(third.answer(), Toolchain)
    assert launcher.started == ["0001", "0003"]


def test_what_compiles_in_two_phases_has_one_limit_for_both():
    course = Course(Limits(60.0, compile_s=10.0))
    began = course.began
    course.enter("compile", began + 1.0)
    assert course.deadline == pytest.approx(began + 11.0)
    course.enter("build", began + 7.0)
    assert course.deadline == pytest.approx(began + 60.0)
    course.enter("compile", began + 8.0)
    assert course.deadline == pytest.approx(began + 12.0)
