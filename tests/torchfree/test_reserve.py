"""Time for packing: how much is reserved, what is packed if time is short, and the messages."""

import dataclasses

import pytest
from builders import baseline, environment, failure, measurement, trial, workload
from fakes import FakeClock, FakeRunner, packs_either
from msgspec.structs import replace
from servings import AHEAD, CARRIED
from test_search import again, run, said, usual

from autocompile.artifact.integrity import open_manifest
from autocompile.core.errors import RunnerError
from autocompile.core.goal import Goal
from autocompile.core.plan import Plan
from autocompile.core.progress import Silence
from autocompile.report.recheck import recheck_lines
from autocompile.report.story import story
from autocompile.report.text import as_text
from autocompile.runtime.inductor.settings import compiled
from autocompile.runtime.kind import Compiled, Kind
from autocompile.search.ledger import Ledger
from autocompile.search.packages import with_packing
from autocompile.search.reserve import Packing, kept_at_first_s, kept_for_packing_s, packing_of
from autocompile.search.run import Bench, Settings
from autocompile.search.strategy import load_strategy


def machine(compile_s=10.0, **fields):
    """A runner whose compiled programs take half the time; its clock runs as a 2-core machine's does."""
    given = {
        "toolchain_s": 2.0,
        "profile_s": 6.0,
        "pack_s": {"cache": 4.0},
        "packs": packs_either,
    }
    return FakeRunner(
        lambda plan: (0.5, compile_s) if not plan.is_eager else (1.0, 0.0), FakeClock(), **{**given, **fields}
    )


FOREVER = Goal(calls=1_000_000)
NOT_AHEAD = failure("unsupported", "pack", "it does not export")


def only_cached(**fields):
    """The same, of a model that no program can be made of ahead."""
    return machine(packs=lambda task: packs_either(task) if task.serving == CARRIED else NOT_AHEAD, **fields)


def headline(document):
    return " ".join(as_text(document).split("\n\n")[0].split())


@pytest.mark.parametrize("strategy", ["quick", "balanced"])
@pytest.mark.parametrize("compile_s", [10.0, 25.0, 40.0])
@pytest.mark.parametrize("budget_s", [60.0, 120.0])
def test_a_short_budget_leaves_an_artifact_or_the_headline_says_why_not(budget_s, compile_s, strategy):
    runner = machine(compile_s)
    document, _ = run(runner=runner, budget_s=budget_s, strategy=strategy, goal=FOREVER)
    artifact = document.artifact
    assert runner.clock.now <= budget_s
    assert artifact.label == document.winner.label
    first = headline(document)
    if artifact.runtime == "eager":
        assert (budget_s, compile_s) == (60.0, 40.0)
        assert "torch.compile itself was not measured (" in first
    else:
        assert artifact.serving.is_packed
        assert "this is what `load` serves" in first or "not timed after loading" in first


def test_what_was_packed_and_not_timed_is_kept_and_called_that():
    document, runner = run(runner=only_cached(load_s=50.0), budget_s=60.0, strategy="quick", goal=FOREVER)
    artifact = document.artifact
    assert (artifact.serving, artifact.untimed) == (CARRIED, "the budget ended first")
    assert runner.clock.now <= 60.0
    untimed = f"Packed and verified (inductor from its cache), but not timed after loading: {artifact.untimed}."
    assert untimed in headline(document)
    assert "packed and verified, but not timed after loading" in as_text(document).split("Artifact", 1)[1]
    assert any("but not timed after loading" in line for line in story(document))
    own, *others = open_manifest(runner.directory, artifact.digest).served
    assert (own.serving, own.expected) == (CARRIED, True)
    assert own.startup_s == document.winner.startup_s == pytest.approx(3.0), "what compiling from that cache took"
    assert own.latency_s == pytest.approx(0.005, rel=0.01)
    assert not any(one.expected for one in others)


def test_a_cache_that_hangs_when_it_is_loaded_is_not_kept():
    document, _ = run(runner=only_cached(load_s=1e6), budget_s=1000.0, strategy="quick", goal=FOREVER)
    assert document.artifact.start == "compile"
    assert "it did not answer within 1m 00s when it was loaded" in document.artifact.absences[0].reason


def test_a_machinery_that_breaks_while_it_is_timed_says_nothing_against_what_was_packed():
    class Breaks(FakeRunner):
        def measure(self, task, limits):
            if task.artifact:
                raise RunnerError("the process that starts trials ended")
            return super().measure(task, limits)

    runner = Breaks(usual, FakeClock(), packs=lambda task: packs_either(task) if task.serving == CARRIED else NOT_AHEAD)
    document, _ = run(runner=runner, goal=FOREVER)
    assert document.artifact.serving == CARRIED
    assert document.artifact.untimed == "the process that starts trials ended"
    assert document.stopped == "the process that starts trials ended"


def test_where_load_will_compile_the_headline_says_for_how_long_and_why():
    document, _ = run(goal=FOREVER)
    assert "Not packed: it does not export; `load` compiles at the first call, about 8 s." in headline(document)
    assert any("It is not packed, so `load` compiles at the first call, about 8 s." in line for line in story(document))


@pytest.mark.parametrize(
    ("stop", "why"),
    [(KeyboardInterrupt(), "interrupted by the user"), (RunnerError("the server ended"), "the server ended")],
)
def test_a_run_that_was_stopped_says_that_nothing_is_packed(stop, why):
    seen = []

    def answer(plan):
        seen.append(plan)
        return usual(plan) if len(seen) < 4 else stop

    document, runner = run(answer, goal=FOREVER)
    assert CARRIED not in runner.packed
    assert f"Not packed: {why}; `load` compiles at the first call, about 8 s." in headline(document)
    assert document.stopped == why
    assert f"Stopped: {why}; this is the best so far." in headline(document)


def test_a_first_compile_is_not_started_where_nothing_would_be_left_to_pack_it():
    document, runner = run(runner=machine(toolchain_s=30.0, profile_s=20.0), budget_s=60.0)
    assert not any(not plan.is_eager for plan in runner.ran)
    assert "torch.compile itself was not measured (0 s left before packing, too little to compile)" in headline(
        document
    )
    assert any("too little to compile" in line for line in said(document, "skipped"))


def test_time_for_packing_is_used_for_finals_as_long_as_nothing_has_to_be_packed():
    def nearly(plan):
        if plan.autocast:
            return failure("wrong_result", "verify", "off")
        return ((0.95 if plan.threads == 1 else 1.0), 0.0) if plan.is_eager else (0.97, 8.0)

    runner = only_cached()
    runner.answer, runner.pack_s = nearly, {"cache": 30.0}
    document, _ = run(runner=runner, budget_s=100.0, strategy="quick", goal=FOREVER)
    assert "left before packing" in said(document, "skipped")[-1]
    assert document.winner.label == "eager threads=1", "more processes show that 5% are more than noise"
    assert document.winner.processes >= 3
    assert runner.clock.now <= 100.0


def test_an_artifact_that_was_not_timed_is_measured_when_it_is_verified():
    document, _ = run(runner=only_cached(load_s=50.0), budget_s=60.0, strategy="quick", goal=FOREVER)
    found = again(document, usual, artifact=measurement(0.5))
    assert (found.verdict, found.then_as_configured) == ("good", True)
    assert found.then == document.winner.speedup
    assert "so the earlier speed-up is of compiling in the process" in "\n".join(recheck_lines(found))
    assert again(document, usual, artifact=measurement(0.9)).verdict == "regression"
    timed, _ = run(runner=only_cached(), budget_s=60.0, strategy="quick", goal=FOREVER)
    assert not again(timed, usual, artifact=measurement(0.3)).then_as_configured


def bench_with(left_s, budget_s=100.0):
    clock = FakeClock()
    ledger = Ledger(budget_s, Silence(), clock=clock)
    clock.now = budget_s - left_s
    quick = load_strategy("quick")
    keeps_30_percent = replace(quick, stages=replace(quick.stages, packing=0.3))
    settings = Settings(Goal(calls=1_000_000), keeps_30_percent, 0, None)
    return Bench(workload(), environment(), None, ledger, Silence(), settings, "reference.pt")


def test_packing_is_started_only_with_most_of_the_time_that_it_takes():
    packing = Packing(takes_s=20.0, loaded_s=8.0)
    assert [packing.limit_s(left_s) for left_s in (40.0, 15.0, 14.0)] == [40.0, 15.0, 0.0]
    assert [packing.reserve_s(left_s) for left_s in (40.0, 24.0, 14.0)] == [28.0, 24.0, 0.0]


def test_what_packing_takes_is_for_the_runtime_that_packs_to_say():
    trials = [baseline(), trial(1, startup_s=20.0)]
    around_s = 1.0 + 0.5 + 0.5  # a process starts, loads the model and verifies
    assert packing_of(bench_with(90.0), trials[1], trials).takes_s == pytest.approx(around_s + 2.0 + 0.15 * 20.0)
    finals = (measurement(0.5, startup_s=1.5),)
    again = packing_of(bench_with(90.0), trial(1, startup_s=20.0, finals=finals), trials)
    assert again.takes_s == pytest.approx(around_s + 1.5)
    eager = replace(trials[1], plan=Plan(threads=1))
    assert packing_of(bench_with(90.0), eager, trials).takes_s == 0.0


def test_what_was_packed_for_its_trial_is_packed_again_only_where_an_earlier_run_had_it(tmp_path):
    trials = [baseline(), replace(trial(1), plan=Plan(runtime=AHEAD.runtime))]
    known = replace(trials[1], outcome=with_packing(trials[1].outcome, 15.0))
    bench = dataclasses.replace(bench_with(90.0), artifact=tmp_path / "artifact")
    assert packing_of(bench, known, trials).takes_s > 15.0
    (bench.packages / known.plan.key).mkdir(parents=True)
    (bench.packages / known.plan.key / "manifest.json").touch()
    assert packing_of(bench, known, trials).takes_s == 0.0


def test_by_default_packing_compiles_once_more():
    class Other(Kind):
        name = "other"
        meaning = "a program"

    assert Other().packing_s(Compiled("cpu", cold_s=7.0, whole_s=20.0)) == 7.0


def test_what_is_kept_follows_what_compiling_took():
    quickly, slowly = (
        kept_for_packing_s(bench_with(900.0, 1000.0), [baseline(), trial(1, startup_s=startup_s)])
        for startup_s in (2500.0, 3500.0)
    )
    assert 300.0 <= quickly < slowly <= 900.0


def test_never_less_is_kept_than_the_strategys_share():
    assert kept_for_packing_s(bench_with(900.0, 1000.0), [baseline(), trial(1, startup_s=1.0)]) == 300.0


def test_nothing_is_kept_where_only_eager_candidates_may_win():
    eager = replace(trial(1, 0.8), plan=Plan(threads=1))
    slower = trial(2, 1.5)
    assert kept_for_packing_s(bench_with(90.0), [baseline(), eager, slower]) == 0.0
    assert kept_for_packing_s(bench_with(90.0), [baseline(), eager, slower], to_come=True) == 30.0
    assert kept_at_first_s(Plan()) == 0.0
    assert kept_at_first_s(compiled()) > 0.0
