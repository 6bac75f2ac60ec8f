"""A search with several lanes: candidates are compiled in parallel and measured one by one, with the same verdict."""

import io
from itertools import combinations, product

import pytest
from builders import failure, trial
from fakes import FakeClock, LanesRunner, packs_either
from msgspec.structs import replace
from rich.console import Console
from test_replay import STRATEGY, recording  # noqa: F401  a fixture
from test_search import run, said

from autocompile.core.document import Document, LaneEntry
from autocompile.core.errors import MachineLost, RunnerError
from autocompile.core.goal import Goal
from autocompile.core.job import CompileTask, PackTask, TrialTask
from autocompile.core.plan import Plan
from autocompile.core.progress import Silence
from autocompile.core.runner import MachineEntry
from autocompile.core.serde import from_json, to_json
from autocompile.report.lanes import lane_lines
from autocompile.report.progress import LiveProgress
from autocompile.report.text import as_text
from autocompile.runner.replay import ReplayRunner
from autocompile.runner.simulated import VirtualClock
from autocompile.runtime.inductor.settings import compiled, settings_of
from autocompile.search.ledger import Ledger
from autocompile.search.run import Bench, Settings
from autocompile.search.session import run_study
from autocompile.search.side_by_side import compiles_ahead
from autocompile.search.strategy import load_strategy

AHEAD = ("CompileTask", "PackTask")


def slow(plan):
    """Compiling takes long enough that another process is worth its start; freezing gains most, autocast fails."""
    if plan.is_eager:
        return (1.0 if plan.threads == 0 else 1.6), 0.0
    if plan.autocast:
        return failure("wrong_result", "verify", "output is off by 0.1")
    ratio = 0.5 if plan.runtime == "inductor" else 0.6
    return (0.7 * ratio if plan.settings.get("options", {}).get("freezing") else ratio), 40.0


def searched(lanes, answer=slow, *, budget_s=1800.0, calls=10**7, deploy="artifact", **fields):
    runner = LanesRunner(answer, FakeClock(), lanes, packs=packs_either, **fields)
    document, runner = run(runner=runner, budget_s=budget_s, goal=Goal(calls=calls, deploy=deploy))
    return document, runner


def spans(runner, *tasks):
    return [span for name, span, _alone in runner.log if name.startswith(tasks)]


def overlap(one, other):
    return one[0] < other[1] and other[0] < one[1]


@pytest.mark.parametrize("lanes", [2, 4])
def test_several_lanes_find_what_one_finds_sooner(lanes):
    alone, alone_runner = searched(1, budget_s=6000.0)
    together, runner = searched(lanes, budget_s=6000.0)
    assert together.winner.label == alone.winner.label
    assert together.winner.speedup == alone.winner.speedup
    assert {entry.label for entry in together.trials} == {entry.label for entry in alone.trials}
    assert runner.clock.now < alone_runner.clock.now


def test_what_is_measured_has_the_machine_to_itself_and_no_candidate_is_measured_twice():
    document, runner = searched(2)
    ahead, alone = spans(runner, *AHEAD), [span for _name, span, is_alone in runner.log if is_alone]
    assert any(overlap(one, other) for one, other in combinations(ahead, 2))
    assert not any(overlap(one, other) for one, other in combinations(alone, 2))
    assert not any(overlap(one, other) for one, other in product(alone, ahead))
    screened = [entry.number for entry in document.trials]
    assert len(screened) == len(set(screened)) == len({entry.label for entry in document.trials})
    compiled_ahead = [name for name, _span, _alone in runner.log if name.startswith("CompileTask")]
    assert len(compiled_ahead) == len(set(compiled_ahead)) > 0


def test_a_trial_from_a_filled_cache_is_told_as_one_from_an_empty_cache():
    together, runner = searched(2, deploy="jit")
    alone, _runner = searched(1, deploy="jit")
    assert spans(runner, "CompileTask")
    seconds = {entry.label: entry.startup_s for entry in alone.trials if entry.startup_s is not None}
    measured = [entry for entry in together.trials if entry.startup_s is not None]
    assert len(measured) > 5
    for entry in measured:
        if entry.label in seconds:
            assert entry.startup_s == pytest.approx(seconds[entry.label])


def test_where_compiling_is_short_no_other_process_is_started_for_it():
    _document, runner = searched(2, lambda plan: (slow(plan)[0], 3.0) if not plan.autocast else slow(plan))
    assert not spans(runner, "CompileTask")
    assert spans(runner, "PackTask"), "what is loaded has to be packed by another process anyway"


def test_compilers_that_time_variants_are_left_alone():
    inductor = [replace(trial(startup_s=40.0), plan=compiled())]
    assert compiles_ahead(compiled(), inductor, 2)
    tuned = compiled(options={"max_autotune": True})
    assert settings_of(tuned).options["max_autotune"]
    assert not compiles_ahead(tuned, inductor, 2)
    assert not compiles_ahead(Plan(runtime="aot", settings={"options": {"max_autotune": True}}), inductor, 2)
    assert compiles_ahead(Plan(runtime="aot"), [], 2)
    assert not compiles_ahead(Plan(), inductor, 2)


def test_what_ran_out_of_memory_beside_others_is_compiled_once_more_alone():
    tried = []

    def scarce(plan):
        if plan.runtime == "aot" and not plan.autocast:
            tried.append(plan.key)
            if tried.count(plan.key) == 1:
                return failure("out_of_memory", "compile", "killed by the system")
        return slow(plan)

    document, runner = searched(2, scarce)
    assert [alone for name, _span, alone in runner.log if name.split()[-1] == tried[0]] == [False, True]
    assert any("while others ran; it is compiled again, alone" in line for line in said(document, "noted"))
    measured = [entry for entry in document.trials if entry.label.startswith("aot") and entry.speedup]
    assert measured


def test_what_runs_out_of_memory_alone_too_has_failed():
    def scarce(plan):
        if plan.runtime == "aot":
            return failure("out_of_memory", "compile", "killed by the system")
        return slow(plan)

    document, _runner = searched(2, scarce)
    failed = [entry.failure.kind for entry in document.trials if entry.label.startswith("aot")]
    assert set(failed) == {"out_of_memory"}


def test_compiling_beside_others_may_take_as_many_times_longer_as_there_are_of_them():
    _document, one = searched(1, calls=20_000, budget_s=600.0)
    _document, two = searched(2, calls=20_000, budget_s=600.0)
    (alone,), (shared,) = ([limits for name, limits in runner.asked if name == "PackTask"][:1] for runner in (one, two))
    assert shared.compile_s == pytest.approx(2 * alone.compile_s)
    assert shared.total_s == pytest.approx(alone.total_s, abs=5.0)
    assert shared.memory_bytes < 0.75 * alone.memory_bytes


def test_the_budget_is_kept_and_what_was_not_measured_is_told():
    document, runner = searched(4, budget_s=150.0)
    assert runner.clock.now <= 150.0 * 1.05
    assert document.complete
    assert said(document, "stopped")


def test_a_broken_runner_ends_the_search_with_what_is_known_and_leaves_nothing_under_way():
    class Breaking(LanesRunner):
        def first_done(self, pending):
            if len([one for one in self.log if one[0].startswith(AHEAD)]) >= 4:
                self.left = pending
                raise RunnerError("the server is gone")
            return super().first_done(pending)

    runner = Breaking(slow, FakeClock(), 2, packs=packs_either)
    document, _runner = run(runner=runner, budget_s=1800.0, goal=Goal(calls=10**7))
    assert document.stopped == "the server is gone"
    assert runner.left
    assert all(pending.is_done() for pending in runner.left)


def test_the_document_tells_what_each_lane_did_and_what_waited():
    document, runner = searched(2)
    ahead = [entry for entry in document.lanes if entry.doing == "compiling"]
    measured = [entry for entry in document.lanes if entry.doing == "measuring"]
    assert {entry.lane for entry in ahead} == {1, 2}
    assert {entry.lane for entry in measured} == {0}
    assert [(entry.began_s, entry.ended_s) for entry in ahead] == spans(runner, *AHEAD)[: len(ahead)]
    assert any(entry.waited_s > 0 for entry in measured)
    assert from_json(to_json(document), Document) == document
    text = as_text(document)
    assert f"measuring, one by one: {len(measured)} candidates in " in text
    assert "compiling, lane 1: " in text
    assert "candidates that were ready waited " in text


def test_a_run_with_one_lane_says_nothing_of_lanes():
    document, _runner = searched(1)
    assert document.lanes == ()
    assert "Lanes" not in as_text(document)


def test_pauses_and_disturbances_are_told():
    alone, _runner = searched(1)
    lanes = (
        LaneEntry(1, "aot", "compiling", 0.0, 50.0, 0.0, 20.0),
        LaneEntry(0, "openvino", "measuring", 30.0, 50.0, 0.0, 0.0, noisy=True, throttled="heat"),
        LaneEntry(0, "aot", "compiling", 50.0, 60.0, 0.0, 0.0),
        LaneEntry(0, "aot", "measuring", 60.0, 62.0, 5.0, 0.0),
    )
    assert list(lane_lines(replace(alone, lanes=lanes))) == [
        "measuring, one by one: 2 candidates in 22.0 s",
        "candidates that were ready waited 5 s for their turn, aot longest: 5 s",
        "other processes used this machine while 1 of 2 were measured",
        "the GPU was slowed down (heat) while openvino was measured",
        "compiling, alone: 1 program in 10.0 s",
        "compiling, lane 1: 1 program in 30.0 s, and paused for 20.0 s while another was measured",
        "compiling in parallel takes as long as compiling alone, or longer",
    ]


def test_what_each_lane_does_is_shown_as_it_goes_on():
    shown = []

    class Watching(Silence):
        def on_lanes(self, lanes):
            shown.append(tuple(lanes))

    runner = LanesRunner(slow, FakeClock(), 2, packs=packs_either)
    run(runner=runner, budget_s=1800.0, goal=Goal(calls=10**7), listener=Watching())
    assert any(sum(lane.startswith("compiling ") for lane in lanes) == 2 for lanes in shown)
    assert any(lane.startswith("measuring ") for lanes in shown for lane in lanes)
    assert any(lane.endswith(" waits to be measured") for lanes in shown for lane in lanes)


def test_with_several_under_way_a_result_has_its_own_name():
    console = Console(file=io.StringIO(), width=200)
    live = LiveProgress(60, console)
    live.on_lanes(["measuring aot", "compiling inductor"])
    live.on_task("inductor")
    live.on_trial(trial(1, 0.5, label="aot"))
    assert "aot: 2.00x" in console.file.getvalue()
    live.on_stage("finals")
    live.on_task("final 1: aot")
    live.on_trial(trial(1, 0.5, label="aot"))
    assert "final 1: aot: 2.00x" in console.file.getvalue()
    terminal = Console(file=io.StringIO(), width=200, force_terminal=True)
    with LiveProgress(60, terminal) as live:
        live.on_lanes(["measuring aot", "compiling inductor"])
    assert "now: measuring aot" in terminal.file.getvalue()
    assert "now: compiling inductor" in terminal.file.getvalue()


@pytest.mark.parametrize("sampler", ["policy", "tpe"])
def test_a_recording_is_searched_in_several_lanes_with_the_same_winner(recording, tmp_path, sampler):  # noqa: F811
    def replayed(lanes):
        clock = VirtualClock()
        runner = ReplayRunner(recording, clock, lanes)
        strategy = tmp_path / f"{sampler}.toml"
        strategy.write_text(STRATEGY.format(sampler))
        bench = Bench(
            workload=recording.about.workload,
            environment=recording.about.environment,
            runner=runner,
            ledger=Ledger(1e6, Silence(), clock=clock),
            listener=Silence(),
            settings=Settings(Goal(calls=10**6, deploy="jit"), load_strategy(str(strategy)), 0, None),
            reference=tmp_path / "reference.pt",
            artifact=tmp_path / f"artifact{lanes}",
        )
        return run_study(bench)

    alone, together = replayed(1), replayed(4)
    assert together.winner.label == alone.winner.label
    startup_s = {entry.label: entry.startup_s for entry in together.trials}
    for entry in alone.trials:  # with trials running, a search also tries candidates that their results would exclude
        assert startup_s[entry.label] == pytest.approx(entry.startup_s)
    assert any(entry.doing == "compiling" for entry in together.lanes)


class TwoMachines(LanesRunner):
    """Two machines with a lane each; the other is gone at its so manyth task. `where`: what was asked of which."""

    def __init__(self, answer, *, dies_at=10**9):
        super().__init__(answer, FakeClock(), 2, packs=packs_either)
        self.dies_at, self.where = dies_at, []

    @property
    def machines(self):
        return MachineEntry("", 1), MachineEntry("far", 1)

    def submit(self, task, limits, *, cache, exclusive, machine=0):
        self.where.append((task, cache, machine))
        pending = super().submit(task, limits, cache=cache, exclusive=False)
        if machine and sum(one for _task, _cache, one in self.where) >= self.dies_at:
            pending.answer = self.is_gone
        return pending

    def is_gone(self):
        raise MachineLost("far: its agent has ended")


def measured_in(runner):
    """How often each plan was measured in the search, and where."""
    return [(task.plan, machine) for task, _cache, machine in runner.where if isinstance(task, TrialTask)]


def test_two_machines_find_what_one_finds_and_each_measures():
    alone, _runner = searched(1)
    runner = TwoMachines(slow)
    document, runner = run(runner=runner, budget_s=1800.0, goal=Goal(calls=10**7))
    assert document.winner.label == alone.winner.label
    assert {machine for _plan, machine in measured_in(runner)} == {0, 1}
    assert len({trial.label for trial in document.trials}) == len(document.trials)
    assert {entry.machine for entry in document.lanes} == {"", "far"}
    assert "measuring on far, one by one: " in as_text(document)
    elsewhere = [task for task, _cache, machine in runner.where if machine]
    assert all(isinstance(task, CompileTask | PackTask | TrialTask) for task in elsewhere)
    finals = [machine for task, _cache, machine in runner.where if isinstance(task, TrialTask)][-4:]
    assert finals == [0, 0, 0, 0], "finals are on one machine"


@pytest.mark.parametrize("dies_at", [1, 2, 3])
def test_what_a_machine_was_at_that_is_gone_is_tried_on_another(dies_at):
    whole, _runner = run(runner=TwoMachines(slow), budget_s=1800.0, goal=Goal(calls=10**7))
    document, runner = run(runner=TwoMachines(slow, dies_at=dies_at), budget_s=1800.0, goal=Goal(calls=10**7))
    assert document.winner.label == whole.winner.label
    assert {trial.label for trial in document.trials} == {trial.label for trial in whole.trials}
    assert len({trial.label for trial in document.trials}) == len(document.trials)
    assert sum(machine for _task, _cache, machine in runner.where) == dies_at, "it is asked for nothing more"
    assert "far: its agent has ended; its candidates are tried elsewhere" in said(document, "noted")
