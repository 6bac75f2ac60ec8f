"""Several machines: which ones join, what is sent, and what happens to the work of a machine that is lost."""

import os
import signal
import time
from pathlib import Path

import pytest
from builders import failure, measurement, workload
from fakes import packs_a_program
from msgspec.structs import replace

from autocompile.core.environment import GpuKind
from autocompile.core.errors import InvalidValue, MachineLost, RunnerError
from autocompile.core.job import Acceptance, Limits, Packed, PackTask, Timing, TrialTask
from autocompile.core.outcome import Toolchain
from autocompile.core.plan import Plan
from autocompile.core.runner import MachineEntry
from autocompile.core.tolerance import Tolerance
from autocompile.runner.cluster import agent as agents
from autocompile.runner.cluster.agent import Agent, here
from autocompile.runner.cluster.joining import difference_of_gpus, join
from autocompile.runner.cluster.link import Process
from autocompile.runner.cluster.messages import Done, Keep, Lacking, Piece, Refused, ask_in, packed
from autocompile.runner.cluster.opening import Reached
from autocompile.runner.cluster.runner import ClusterRunner
from autocompile.runtime.catalogue import serving_of
from autocompile.search.machines import Machines

HERE = here()
AMPLE = Limits(60.0)
ACCEPTANCE = Acceptance(Tolerance(1e-3, 1e-3, 1e-2))


def elsewhere(name, **changed):
    return replace(HERE, host=name, machine=name, environment=replace(HERE.environment, **changed))


class Workers:
    """A cluster's workers, as an engine tells of them."""

    name = "dask://host:8786"

    def __init__(self, **told):
        self.told = told

    def workers(self):
        return self.told


def test_workers_of_one_machine_are_its_lanes_and_those_here_are_homes():
    engine = Workers(a=HERE, b=elsewhere("far", cores=HERE.environment.cores), c=elsewhere("far"), d=elsewhere("other"))
    joined = join(engine, HERE)
    assert joined.here == 1
    lanes = min(2, HERE.environment.cores)
    assert [(site.name, site.worker, site.lanes) for site in joined.sites] == [("far", "b", lanes), ("other", "d", 1)]
    assert joined.refused == ()


def test_machines_of_another_kind_are_refused_with_the_difference():
    engine = Workers(a=elsewhere("old", torch="1.0"), b=elsewhere("far"), c="No module named 'autocompile'")
    joined = join(engine, HERE)
    assert [site.name for site in joined.sites] == ["far"]
    assert joined.refused == (
        ("old (a)", f"is of another kind: torch 1.0, here {HERE.environment.torch}"),
        ("c", "No module named 'autocompile'"),
    )


@pytest.mark.parametrize(
    ("told", "fault"),
    [
        ({}, "dask://host:8786 has no worker; start workers, then try again"),
        ({"a": elsewhere("old", torch="1.0")}, r"can be used: old \(a\) is of another kind: torch 1.0"),
    ],
)
def test_a_cluster_of_which_nobody_can_join_is_told_in_a_line(told, fault):
    with pytest.raises(InvalidValue, match=fault) as raised:
        join(Workers(**told), HERE)
    assert "\n" not in str(raised.value)


def with_gpus(*names, driver="580.1", name="far"):
    return replace(elsewhere(name, driver=driver), gpus=names)


def on_gpus(*names, device="cuda"):
    return workload(device=device, gpus=tuple(GpuKind(name, "9.0", 132) for name in names))


@pytest.mark.parametrize(
    ("used", "home", "there", "fault"),
    [
        (workload(), with_gpus("H100"), with_gpus("T4", driver="1"), ""),
        (on_gpus("H100"), with_gpus("H100", "T4"), with_gpus("H100"), ""),
        (on_gpus("H100"), with_gpus("H100", "T4"), with_gpus("H100", "T4"), ""),
        (on_gpus("H100"), with_gpus("H100"), with_gpus("T4"), "is of another kind: T4, here H100"),
        (on_gpus("H100"), with_gpus("H100"), with_gpus("T4", "H100"), "is of another kind: T4 and H100, here H100"),
        (
            on_gpus("H100"), with_gpus("H100"), with_gpus("H100", driver="1"),
            "is of another kind: driver 1, here 580.1",
        ),
        (on_gpus("H100"), with_gpus("H100"), with_gpus(), "has no GPU, and the workload needs 1"),
        (
            on_gpus("H100", device="cuda:1"), with_gpus("H100", "H100"), with_gpus("H100"),
            "has 1 GPU, and the workload needs 2",
        ),
        (on_gpus("H100", "T4"), with_gpus("H100", "T4"), with_gpus("H100", "T4"), ""),
        (
            on_gpus("H100", "T4"), with_gpus("H100", "T4"), with_gpus("T4", "H100"),
            "is of another kind: T4 and H100, here H100 and T4",
        ),
    ],
)  # fmt: skip
def test_what_counts_of_gpus_is_what_the_workload_uses(used, home, there, fault):
    assert difference_of_gpus(used, home, there) == fault


def test_no_agent_is_brought_to_another_gpu():
    home = with_gpus("H100", name="home")
    engine = Workers(a=with_gpus("T4"), b=with_gpus("T4", name="other"))
    told = []
    with Reached(engine, join(engine, home), home).runner(Home(), on_gpus("H100"), lambda *one: told.append(one)) as it:
        assert it.machines == Home.machines
    assert told == [("far", "is of another kind: T4, here H100"), ("other", "is of another kind: T4, here H100")]


class Child:
    """A turn of the fake runner on a machine, which ends as the test says."""

    def __init__(self, job):
        self.job, self.outcome, self.cancelled = job, None, False
        self.span_s, self.pauses_s = (time.monotonic(), time.monotonic()), ()

    def is_done(self):
        return self.outcome is not None

    def answer(self):
        return self.outcome

    def cancel(self):
        self.cancelled = True


class Children:
    """What a machine's runner runs: the compiler check at once, all else until it is ended."""

    def __init__(self, directory, seed, *, workers):
        self.workers, self.started, self.closed = workers, [], False

    def preload(self, workload):
        self.workload = workload

    def submit(self, task, limits, *, cache, exclusive):
        child = Child(task)
        if cache == "toolchain":
            child.outcome = Toolchain(1.0, "AVX2")
        else:
            self.started.append(child)
        return child

    def forget(self, cache):
        pass

    def close(self):
        self.closed = True


class Wire:
    """A link to an agent in this process; `sent`: what was asked of it."""

    def __init__(self, agent):
        self.agent, self.sent, self.is_cut = agent, [], False

    def call(self, request, timeout_s):
        if self.is_cut:
            raise MachineLost("its agent has ended")
        ask = ask_in(request)
        self.sent.append(ask)
        return packed(self.agent.answer(ask))

    def close(self):
        self.agent.close()


class Home:
    """This machine, on which nothing runs."""

    lanes, machines = 1, (MachineEntry("", 1),)

    def forget(self, cache):
        pass


@pytest.fixture
def spooled(tmp_path):
    directory = tmp_path / "home" / "workload"
    directory.mkdir(parents=True)
    (directory / "workload.pt").write_bytes(b"weights" * 1000)
    (directory / "empty").touch()
    return replace(workload(), directory=str(directory), modules=("json", "__builtin__"), search_path=("/nowhere",))


@pytest.fixture
def cluster(tmp_path, spooled, monkeypatch):
    monkeypatch.setattr(agents, "LocalRunner", Children)
    monkeypatch.setattr("autocompile.runner.cluster.machine._NEWS_S", 0.01)
    agent = Agent(tmp_path / "far")
    wire = Wire(agent)
    with ClusterRunner(Home()) as runner:
        assert runner.add([("far", 2, wire)], spooled) == []
        yield runner, wire, agent
    assert agent._runner.closed


def trial(spooled, tmp_path, artifact=""):
    reference = tmp_path / "home" / "reference" / "reference.pt"
    if not reference.exists():
        reference.parent.mkdir()
        reference.write_bytes(b"outputs")
        reference.with_name("reference.pt.0").write_bytes(b"a case")
    return TrialTask(spooled, Plan(runtime="eager"), str(reference), Timing(0.01, 1.0), ACCEPTANCE, 0, artifact)


def started(agent, count):
    until = time.monotonic() + 20
    while len(agent._runner.started) < count and time.monotonic() < until:
        time.sleep(0.01)
    return agent._runner.started[count - 1]


def kept(wire):
    return [ask.digest for ask in wire.sent if isinstance(ask, Keep)]


def test_a_task_is_done_there_with_files_that_travel_once(cluster, spooled, tmp_path):
    runner, wire, agent = cluster
    assert runner.machines == (MachineEntry("", 1), MachineEntry("far", 2))
    first = runner.submit(trial(spooled, tmp_path), AMPLE, cache="a", exclusive=True, machine=1)
    second = runner.submit(trial(spooled, tmp_path), AMPLE, cache="b", exclusive=True, machine=1)
    there = started(agent, 2).job
    assert Path(there.workload.directory, "workload.pt").read_bytes() == b"weights" * 1000
    assert Path(there.workload.directory, "empty").read_bytes() == b""
    assert Path(there.reference).with_name("reference.pt.0").read_bytes() == b"a case"
    assert str(tmp_path / "home") not in there.workload.directory + there.reference
    assert "/nowhere" not in there.workload.search_path
    assert len(kept(wire)) == len(set(kept(wire))) == 4
    started(agent, 2).outcome = measurement(0.5)
    assert runner.first_done([first, second]) is second
    assert second.answer() == measurement(0.5)
    assert second.span_s[1] <= time.monotonic()
    assert not first.is_done()
    first.cancel()
    with pytest.raises(RunnerError, match="was cancelled"):
        first.answer()


def test_what_is_packed_there_comes_home_and_can_be_measured_anywhere(cluster, spooled, tmp_path):
    runner, wire, agent = cluster
    to = tmp_path / "home" / "package" / "programs"
    task = PackTask(
        workload=spooled, plan=Plan(runtime="aot"), serving=serving_of(Plan(runtime="aot")),
        reference=trial(spooled, tmp_path).reference, acceptance=ACCEPTANCE, directory=str(to),
    )  # fmt: skip
    packing = runner.submit(task, AMPLE, cache="a", exclusive=False, machine=1)
    child = started(agent, 1)
    child.outcome = packs_a_program(child.job)
    assert isinstance(packing.answer(), Packed)
    assert (to / "program0.pt2").read_bytes() == b"machine code"
    before = len(kept(wire))
    runner.submit(trial(spooled, tmp_path, str(to.parent)), AMPLE, cache="b", exclusive=True, machine=1)
    assert (Path(started(agent, 2).job.artifact) / "programs" / "program0.pt2").read_bytes() == b"machine code"
    assert len(kept(wire)) == before, "the file is there already"


def test_what_a_machine_was_at_that_is_gone_is_no_verdict(cluster, spooled, tmp_path):
    runner, wire, agent = cluster
    pending = runner.submit(trial(spooled, tmp_path), AMPLE, cache="a", exclusive=True, machine=1)
    started(agent, 1)
    wire.is_cut = True
    with pytest.raises(MachineLost, match="far: its agent has ended"):
        pending.answer()
    later = runner.submit(trial(spooled, tmp_path), AMPLE, cache="a", exclusive=True, machine=1)
    with pytest.raises(MachineLost):
        later.answer()


@pytest.mark.parametrize("fault", [ValueError("cannot be encoded"), None], ids=["raises", "answers something else"])
def test_tasks_end_whatever_goes_wrong_on_the_way(cluster, spooled, tmp_path, fault):
    runner, wire, agent = cluster
    pending = runner.submit(trial(spooled, tmp_path), AMPLE, cache="a", exclusive=True, machine=1)
    started(agent, 1)

    def call(request, timeout_s):
        if fault:
            raise fault
        return packed(Piece(b""))

    wire.call = call
    until = time.monotonic() + 20
    while not pending.is_done() and time.monotonic() < until:
        time.sleep(0.01)
    assert isinstance(pending.outcome, MachineLost)
    assert ("ValueError: cannot be encoded" if fault else "it answered with Piece, not Told") in str(pending.outcome)


@pytest.mark.parametrize("size", [1, 1 << 20], ids=["never answers", "never reads"])
def test_an_agent_that_is_stuck_is_given_up_in_time(size):
    link = Process()
    try:
        os.kill(link._process.pid, signal.SIGSTOP)
        with pytest.raises(MachineLost, match=r"no answer in 0\.1 s"):
            link.call(b"x" * size, 0.1)
        with pytest.raises(MachineLost, match="its agent has ended"):
            link.call(b"x", 20.0)
    finally:
        link.close()


def test_a_module_that_is_missing_there_is_told(tmp_path, spooled, monkeypatch):
    monkeypatch.setattr(agents, "LocalRunner", Children)
    with ClusterRunner(Home()) as runner:
        wire = Wire(Agent(tmp_path / "far"))
        lacking = replace(spooled, modules=("no_such_module_of_mine.part",))
        ((name, reason),) = runner.add([("far", 1, wire)], lacking)
        assert (name, reason.partition(";")[0]) == ("far", "no_such_module_of_mine.part cannot be imported there")
        assert runner.machines == Home.machines


def test_an_agent_keeps_nothing_damaged_and_nothing_outside_its_directory(tmp_path):
    agent = Agent(tmp_path / "far")
    digest = "0" * 64
    assert isinstance(agent.answer(Keep(digest, b"something else", is_last=True)), Refused)
    assert agent.answer(Lacking((digest,))).digests == (digest,)
    assert isinstance(agent.answer(Keep("../escape", b"x", is_last=True)), Refused)
    assert not list(tmp_path.rglob("escape"))
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert isinstance(agent.answer(Keep(empty, b"", is_last=True)), Done)
    with pytest.raises(RunnerError, match="outside"):
        agent._store.put_down({"../escape": empty})


def test_a_machine_with_one_lane_does_one_candidate_at_a_time():
    machines = Machines([MachineEntry("", 1), MachineEntry("far", 2)])
    assert machines.free([], []) == 0
    assert machines.free([0], [0]) == 1
    assert machines.free([0, 1, 1], [0, 1, 1]) is None
    assert machines.free([1], [0, 1, 1, 1]) == 1
    machines.lose(1)
    assert machines.free([], [0]) is None


def test_a_slow_busy_or_throttled_machine_only_compiles_from_then_on():
    calm, baseline_ms = measurement(), measurement().baseline.mean_ms
    noisy = replace(calm, contamination=replace(calm.contamination, noisy=True))
    throttled = replace(calm, contamination=replace(calm.contamination, throttled="heat"))
    machines = Machines([MachineEntry(name, 1) for name in ("", "slow", "busy", "hot", "fine")])
    assert machines.judge(1, calm, baseline_ms / 2) == "the baseline takes 2 times as long there as here"
    assert machines.judge(2, noisy, baseline_ms) == ""
    assert machines.judge(2, noisy, baseline_ms) == "other programs use it"
    assert machines.judge(2, noisy, baseline_ms) == "", "it is told once"
    assert "heat" in machines.judge(3, throttled, baseline_ms)
    assert machines.judge(4, failure(), baseline_ms) == ""
    assert machines.judge(0, throttled, baseline_ms) == "", "home measures whatever happens"
    assert [machines.measures(number) for number in range(5)] == [True, False, False, False, True]
