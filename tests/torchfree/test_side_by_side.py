"""Several lanes on one machine: compilations run in parallel, and timing runs alone."""

import subprocess
import sys
import time
from contextlib import suppress

import psutil
import pytest
from builders import measurement, workload
from msgspec.structs import replace

from autocompile.core.errors import RunnerError
from autocompile.core.job import Limits, ToolchainTask
from autocompile.core.outcome import Failure, Measurement, Toolchain
from autocompile.core.protocol import REPLY_FILE
from autocompile.core.serde import to_json
from autocompile.runner import lane, turns
from autocompile.runner.course import Course
from autocompile.runner.launchers import kill_tree
from autocompile.runner.local import LocalRunner
from autocompile.runner.pausing import pause_tree, resume_tree, worked_s

TASK, AMPLE = ToolchainTask("cpu"), Limits(60.0)
DONE = Toolchain(1.0, "AVX2", phases_s={"compile": 30.0})
NOISY = replace(measurement(), contamination=replace(measurement().contamination, noisy=True))


class Children:
    """What all launchers of a runner started, by the name of the job, as told to those who ask."""

    def __init__(self):
        self.launchers, self.log = [], []

    def launcher(self, name):
        self.launchers.append(Obedient(name, self.log))
        return self.launchers[-1]

    def running(self):
        return [one.job.name for one in self.launchers if one.job and not one.is_paused]

    def paused(self):
        return [one.job.name for one in self.launchers if one.job and one.is_paused]

    def phase(self, job, phase):
        self._of(job).events.append({"phase": phase, "at": time.monotonic()})

    def end(self, job, reply=DONE, code=0):
        launcher = self._of(job)
        (launcher.job / REPLY_FILE).write_bytes(to_json(reply))
        launcher.events.append({"exited": code, "at": time.monotonic()})

    def _of(self, job):
        return next(one for one in self.launchers if one.job and one.job.name == job)


class Obedient:
    """A launcher whose child does what the test says, and nothing by itself."""

    def __init__(self, name, log):
        self.name, self.log = name, log
        self.job, self.is_paused, self.events = None, False, []
        self.works, self.when_paused, self.when_resumed = True, lambda: None, lambda: None

    def start(self, directory):
        assert self.job is None, "one child at a time"
        self.job, self.is_paused = directory, False
        self.log.append(f"{self.name} starts {directory.name}")

    def next_event(self, timeout_s):
        if not self.events:
            time.sleep(min(timeout_s, 0.01))
            return None
        event = self.events.pop(0)
        if "exited" in event:
            self.job = None
        return event

    def kill(self):
        if self.job:
            self.log.append(f"{self.name} kills {self.job.name}{' while it is paused' if self.is_paused else ''}")
            self.events.append({"exited": -9, "at": time.monotonic()})

    def pause(self):
        self.is_paused = True
        self.when_paused()

    def resume(self):
        self.is_paused = False
        self.when_resumed()

    def worked_s(self):
        return time.monotonic() if self.works else 0.0

    def preload(self, modules, search_path):
        pass

    def close(self):
        pass


@pytest.fixture
def children():
    return Children()


@pytest.fixture
def runner_of(tmp_path, children):
    runners = []

    def runner(workers=2, device="cpu"):
        made = LocalRunner(
            tmp_path / "jobs",
            tmp_path / "seed",
            workers=workers,
            on_disturbance=lambda: children.log.append("disturbed"),
            launch=children.launcher,
        )
        runners.append(made)
        made.preload(replace(workload(), device=device))
        return made

    yield runner
    for made in runners:
        made.close()


def compiling(runner, limits=AMPLE):
    return runner.submit(TASK, limits, cache="compiled", exclusive=False)


def timed(runner, limits=AMPLE):
    return runner.submit(TASK, limits, cache="timed", exclusive=True)


def test_as_many_compile_side_by_side_as_there_are_workers(runner_of, children):
    runner = runner_of(workers=2)
    first, second, third = compiling(runner), compiling(runner), compiling(runner)
    assert runner.lanes == 2
    assert children.running() == ["0001", "0002"]
    children.end("0002")
    assert runner.first_done([first, second, third]) is second
    assert children.running() == ["0001", "0003"]
    children.end("0001")
    children.end("0003")
    assert first.answer() == third.answer() == DONE


def test_what_is_timed_runs_alone_and_the_others_go_on_afterwards(runner_of, children):
    runner = runner_of()
    first, second = compiling(runner), compiling(runner)
    alone, next_alone, third = timed(runner), timed(runner), compiling(runner)
    assert (children.running(), children.paused()) == (["0003"], ["0001", "0002"])
    children.end("0003", measurement())
    assert isinstance(alone.answer(), Measurement)
    assert (children.running(), children.paused()) == (["0004"], ["0001", "0002"])
    children.end("0004")
    next_alone.answer()
    assert (children.running(), children.paused()) == (["0001", "0002"], [])
    assert first.course.pauses[0][1] > next_alone.span_s[0]
    assert not any(one.is_done() for one in (first, second, third))


def test_whoever_waits_for_what_a_paused_one_holds_gets_it_and_is_then_alone_again(runner_of, children, monkeypatch):
    monkeypatch.setattr(lane, "_STUCK_S", 0.1)
    monkeypatch.setattr(turns, "_LOOK_S", 0.01)
    runner = runner_of()
    holds_a_lock, waits = compiling(runner), timed(runner)
    children.phase("0002", "compile")
    timing, holder = children.launchers[:2]
    timing.works = False

    def lets_go():
        if not timing.works:
            timing.works = True
            children.phase("0002", "timing")

    holder.when_resumed = lets_go
    holder.when_paused = lambda: children.end("0002") if timing.works else None
    waits.answer()
    assert len(holds_a_lock.course.pauses) == 2
    assert children.running() == ["0001"]


def test_nobody_is_let_on_while_one_is_timed(runner_of, children, monkeypatch):
    monkeypatch.setattr(lane, "_STUCK_S", 0.0)
    runner = runner_of()
    paused, alone = compiling(runner), timed(runner, Limits(0.5))
    children.phase("0002", "timing")
    children.launchers[0].works = False
    assert alone.answer().kind == "timeout"
    assert len(paused.course.pauses) == 1


def test_a_pause_is_no_part_of_any_phase(runner_of, children):
    runner = runner_of()
    paused = compiling(runner)
    children.phase("0001", "compile")
    assert not paused.is_done()
    alone = timed(runner)
    time.sleep(0.3)
    children.end("0002")
    alone.answer()
    children.end("0001")
    ((since, until),) = paused.answer() and paused.pauses_s
    assert until - since >= 0.3
    assert paused.answer().phases_s["compile"] == pytest.approx(30.0 - (until - since))
    assert paused.span_s[0] <= since < until <= paused.span_s[1]


def test_a_compile_is_not_ended_for_the_time_that_it_was_paused():
    course = Course(Limits(60.0, compile_s=10.0))
    began = course.began
    course.enter("compile", began + 1.0)
    course.pause(began + 3.0)
    assert course.deadline == pytest.approx(began + 60.0), "wall time goes on"
    course.resume(began + 33.0)
    assert course.deadline == pytest.approx(began + 41.0)
    course.pause(began + 36.0)
    course.resume(began + 40.0)
    assert course.deadline == pytest.approx(began + 45.0)
    ending = course.end(0, began + 44.0)
    assert ending.seconds["compile"] == pytest.approx(9.0)
    assert ending.total_s == pytest.approx(44.0)


def test_what_a_child_said_just_before_it_was_paused_is_heard_in_time():
    course = Course(Limits(60.0, compile_s=10.0))
    began = course.began
    course.pause(began + 1.0)
    course.enter("compile", began + 1.0)
    course.resume(began + 21.0)
    assert course.deadline == pytest.approx(began + 31.0)
    assert course.end(0, began + 22.0).seconds == pytest.approx({"start": 1.0, "compile": 1.0})
    assert course.without_pauses(replace(DONE, phases_s={"compile": 21.0})).phases_s["compile"] == pytest.approx(1.0)


def test_whoever_is_paused_when_the_time_is_over_is_ended(runner_of, children):
    runner = runner_of()
    late, alone = compiling(runner, Limits(0.2)), timed(runner)
    ended = late.answer()
    assert isinstance(ended, Failure)
    assert ended.kind == "timeout"
    assert children.log[-1] == "server1 kills 0001 while it is paused"
    assert children.running() == ["0002"]
    assert not alone.is_done()


def test_an_interrupt_leaves_nothing_running_or_paused(runner_of, children):
    runner = runner_of()
    pending = compiling(runner), compiling(runner), timed(runner), compiling(runner)
    runner._interrupts._came = True
    with pytest.raises(KeyboardInterrupt):
        compiling(runner)
    assert sorted(children.log[-3:]) == [
        "server kills 0003",
        "server1 kills 0001 while it is paused",
        "server2 kills 0002 while it is paused",
    ]
    for one in pending:
        with pytest.raises(RunnerError, match="ended with all others"):
            one.answer()


def test_cancelling_what_is_timed_lets_the_others_go_on(runner_of, children):
    runner = runner_of()
    first, alone = compiling(runner), timed(runner)
    alone.cancel()
    assert (children.running(), children.paused()) == (["0001"], [])
    first.cancel()
    assert children.running() == []


def test_where_nothing_can_be_paused_the_others_are_waited_for(runner_of, children):
    runner = runner_of()
    runner._turns.beside = "wait"
    first, alone, second = compiling(runner), timed(runner), compiling(runner)
    assert children.running() == ["0001"], "nothing else begins, or what is timed would never have its turn"
    children.end("0001")
    first.answer()
    assert children.running() == ["0002"]
    children.end("0002")
    alone.answer()
    assert children.running() == ["0003"]
    assert not second.is_done()


def test_beside_a_gpu_compiling_goes_on_until_a_timing_is_disturbed(runner_of, children):
    runner = runner_of(device="cuda")
    first, alone = compiling(runner), timed(runner)
    assert children.running() == ["0002", "0001"]
    children.end("0002", measurement())
    assert isinstance(alone.answer(), Measurement)
    disturbed = timed(runner)
    children.end("0003", NOISY)
    assert not disturbed.is_done(), "it is timed again, alone"
    assert children.log.count("disturbed") == 1
    assert (children.running(), children.paused()) == (["0003-alone"], ["0001"])
    children.end("0003-alone", measurement())
    assert not disturbed.answer().contamination.noisy
    assert children.running() == ["0001"]
    later = timed(runner)
    assert (children.running(), children.paused()) == (["0004"], ["0001"])
    children.end("0004", NOISY)
    assert later.answer().contamination.noisy, "it was alone, so others are at fault, and it is told as it is"
    assert children.log.count("disturbed") == 1
    assert not first.is_done()


def test_what_cannot_be_started_is_told_with_nothing_left_running(runner_of, children):
    runner = runner_of()
    first = compiling(runner)

    def refuse(_directory):
        raise RunnerError("no memory to fork")

    children.launchers[0].start = refuse
    with pytest.raises(RunnerError, match="no memory to fork"):
        timed(runner)
    assert children.log[-1] == "server1 kills 0001"
    assert first.is_done()


FAMILY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
print(child.pid, flush=True)
while True: pass
"""


@pytest.fixture
def family():
    parent = subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE, start_new_session=True)
    child = int(parent.stdout.readline())
    yield psutil.Process(parent.pid), psutil.Process(child)
    kill_tree(parent.pid)
    parent.wait()
    parent.stdout.close()


def busy_s(family):
    return sum(sum(process.cpu_times()[:2]) for process in family)


def test_a_process_is_paused_with_all_that_it_started(family):
    pause_tree(family[0].pid)
    assert {process.status() for process in family} == {psutil.STATUS_STOPPED}
    before = busy_s(family)
    time.sleep(0.2)
    assert busy_s(family) == worked_s(family[0].pid) == before
    resume_tree(family[0].pid)
    until = time.monotonic() + 60
    while busy_s(family) == before and time.monotonic() < until:
        time.sleep(0.02)
    assert busy_s(family) > before


def test_a_paused_process_is_killed_with_all_that_it_started(family):
    pause_tree(family[0].pid)
    kill_tree(family[0].pid)
    _gone, alive = psutil.wait_procs(family[1:], timeout=60)
    assert not alive
    with suppress(psutil.NoSuchProcess):
        assert family[0].status() == psutil.STATUS_ZOMBIE


def test_nothing_happens_to_a_process_that_has_ended():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    pause_tree(ended.pid)
    resume_tree(ended.pid)
    assert worked_s(ended.pid) == 0.0
    assert ended.returncode == 0
