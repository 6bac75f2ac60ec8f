"""Packing has its time: what is kept for it, what is packed when time is short, and what is said of it."""

import pytest
from builders import baseline, environment, failure, measurement, trial, workload
from fakes import FakeClock, FakeRunner, packs_a_program, packs_either
from msgspec.structs import replace
from servings import AHEAD, AS_IT_IS, CARRIED
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
from autocompile.search.judge.contender import TYPICAL_LOAD_S
from autocompile.search.ledger import Ledger
from autocompile.search.reserve import Packing, kept_at_first_s, kept_for_packing_s, packing_of
from autocompile.search.run import Bench, Settings
from autocompile.search.strategy import load_strategy


def machine(compile_s=10.0, pack_s=12.0, **fields):
    """A runner whose compiled programs take half the time; its clock runs as a 2-core machine's does."""
    given = {
        "toolchain_s": 2.0,
        "profile_s": 6.0,
        "pack_s": {"load": pack_s, "cache": 4.0},
        "packs": packs_either,
        "artifact": measurement(0.3, startup_s=0.05),
    }
    return FakeRunner(
        lambda plan: (0.5, compile_s) if not plan.is_eager else (1.0, 0.0), FakeClock(), **{**given, **fields}
    )


def headline(document):
    return " ".join(as_text(document).split("\n\n")[0].split())


# The best that there can be: in 60 s a program, if compiling takes 10 s; if it takes 25 s, the cache that it left.
SERVINGS = {
    (60, 10): AHEAD,
    (60, 25): CARRIED,
    (60, 40): AS_IT_IS,
    (120, 10): AHEAD,
    (120, 25): AHEAD,
    (120, 40): AHEAD,
}


@pytest.mark.parametrize("strategy", ["quick", "balanced"])
@pytest.mark.parametrize("pack_s", [12.0, 20.0])
@pytest.mark.parametrize(("budget_s", "compile_s"), SERVINGS)
def test_a_short_budget_leaves_an_artifact_or_the_headline_says_why_not(budget_s, compile_s, pack_s, strategy):
    runner = machine(float(compile_s), pack_s)
    document, _ = run(runner=runner, budget_s=float(budget_s), strategy=strategy)
    artifact = document.artifact
    assert runner.clock.now <= budget_s
    assert artifact.serving == SERVINGS[budget_s, compile_s]
    assert artifact.label == document.winner.label
    first = headline(document)
    if artifact.runtime == "eager":
        assert "torch.compile itself was not measured (" in first
    else:
        assert document.winner.label == "inductor"
        assert artifact.processes or "not timed as loaded" in first
    if artifact.start == "cache":
        assert "which starts the compiler at the first call; not as aot: " in first
        assert "of the budget left, too little to pack it, which takes some " in first


def test_a_program_that_takes_too_long_leaves_time_for_the_cache():
    runner = machine(pack_s=1e6)
    document, _ = run(runner=runner, budget_s=120.0, strategy="quick")
    assert runner.packed == [AHEAD, CARRIED]
    assert document.artifact.start == "cache"
    assert "packing it took more than the" in document.artifact.absences[0].reason
    assert runner.clock.now <= 120.0


def test_what_was_packed_and_not_timed_is_kept_and_called_that():
    document, runner = run(runner=machine(load_s=50.0), budget_s=60.0, strategy="quick")
    artifact = document.artifact
    assert (artifact.serving, artifact.processes, artifact.speedup, artifact.startup_s) == (AHEAD, 0, None, None)
    assert artifact.untimed == "the budget ended before it was timed as loaded"
    assert artifact.expected_startup_s == TYPICAL_LOAD_S
    assert runner.clock.now <= 60.0
    assert f"Packed, verified, not timed as loaded: {artifact.untimed} (aot)." in headline(document)
    assert "packed and verified, not timed as loaded" in as_text(document).split("Artifact", 1)[1]
    assert any("but not timed as loaded" in line for line in story(document))
    own, *others = open_manifest(runner.directory, artifact.digest).served
    assert (own.serving, own.expected, own.startup_s) == (AHEAD, True, TYPICAL_LOAD_S)
    assert own.latency_s == pytest.approx(0.005, rel=0.01)
    assert not any(one.expected for one in others)


def test_a_carried_cache_that_was_not_timed_tells_what_its_start_takes():
    def packs(task):
        return packs_either(task) if task.serving == CARRIED else failure("unsupported", "pack", "it does not export")

    document, _ = run(runner=machine(packs=packs, load_s=90.0), budget_s=60.0, strategy="quick")
    assert document.artifact.start == "cache"
    assert document.artifact.expected_startup_s == pytest.approx(3.0)
    assert (
        "(inductor from its cache, which starts the compiler at the first call, some 3 s; not as aot: it does"
        in headline(document)
    )


def test_what_hangs_when_it_is_loaded_is_not_kept():
    document, runner = run(runner=machine(load_s=1e6), budget_s=1000.0, strategy="quick")
    assert runner.packed == [AHEAD, CARRIED]
    assert document.artifact.start == "compile"
    assert all("it did not answer within 1m 00s when it was loaded" in a.reason for a in document.artifact.absences)


def test_a_machinery_that_breaks_while_it_is_timed_says_nothing_against_what_was_packed():
    class Breaks(FakeRunner):
        def measure(self, task, limits):
            if task.artifact:
                raise RunnerError("the process that starts trials ended")
            return super().measure(task, limits)

    runner = Breaks(usual, FakeClock(), packs=packs_a_program)
    document, _ = run(runner=runner)
    assert document.artifact.serving == AHEAD
    assert document.artifact.untimed == "the process that starts trials ended"


def test_where_production_starts_from_it_an_untimed_artifact_starts_as_they_usually_do():
    goal = Goal(calls=100, deploy="artifact")
    document, _ = run(runner=machine(load_s=50.0), budget_s=60.0, strategy="quick", goal=goal)
    assert document.winner.label == "inductor"
    assert document.winner.startup_s == pytest.approx(TYPICAL_LOAD_S)


def test_where_load_will_compile_the_headline_says_for_how_long_and_why():
    document, _ = run()
    assert "Not packed: it does not export; `load` compiles at the first call, some 8 s." in headline(document)
    assert document.artifact.expected_startup_s == pytest.approx(8.0)
    assert any("It is not packed, so `load` compiles at the first call, some 8 s." in line for line in story(document))


@pytest.mark.parametrize(
    ("stop", "why"),
    [(KeyboardInterrupt(), "interrupted by the user"), (RunnerError("the server ended"), "the server ended")],
)
def test_a_run_that_was_stopped_says_that_nothing_is_packed(stop, why):
    seen = []

    def answer(plan):
        seen.append(plan)
        return usual(plan) if len(seen) < 4 else stop

    document, runner = run(answer)
    assert runner.packed == []
    assert f"Not packed: {why}; `load` compiles at the first call, some 8 s." in headline(document)
    assert document.stopped == why
    assert f"Stopped: {why}; this is the best so far." in headline(document)


def test_a_first_compile_is_not_started_where_nothing_would_be_left_to_pack_it():
    document, runner = run(runner=machine(toolchain_s=30.0, profile_s=20.0), budget_s=60.0)
    assert not any(not plan.is_eager for plan in runner.ran)
    assert "torch.compile itself was not measured (0 s left before packing, too little to compile)" in headline(
        document
    )
    assert any("too little to compile" in line for line in said(document, "skipped"))


def test_an_artifact_that_was_not_timed_is_measured_when_it_is_verified():
    document, _ = run(runner=machine(load_s=50.0), budget_s=60.0, strategy="quick")
    found = again(document, usual, artifact=measurement(0.5))
    assert (found.verdict, found.then_as_configured) == ("good", True)
    assert found.then == document.winner.speedup
    assert "then is the configuration's own" in "\n".join(recheck_lines(found))
    assert again(document, usual, artifact=measurement(0.9)).verdict == "regression"
    timed, _ = run(runner=machine(), budget_s=60.0, strategy="quick")
    assert not again(timed, usual, artifact=measurement(0.3)).then_as_configured


def bench_with(left_s, budget_s=100.0):
    clock = FakeClock()
    ledger = Ledger(budget_s, Silence(), clock=clock)
    clock.now = budget_s - left_s
    settings = Settings(Goal(calls=1_000_000), load_strategy("quick"), 0, None)
    return Bench(workload(), environment(), None, ledger, Silence(), settings, "reference.pt")


def test_a_program_is_compiled_ahead_only_where_the_cache_would_still_fit_behind_it():
    packing = Packing({AHEAD: 20.0, CARRIED: 6.0}, loaded_s=8.0)
    assert packing.limit_s(AHEAD, 40.0) == 34.0
    assert packing.limit_s(AHEAD, 20.0) == 0.0
    assert packing.limit_s(CARRIED, 20.0) == 20.0
    assert packing.limit_s(CARRIED, 2.0) == 0.0
    assert [packing.reserve_s(left_s) for left_s in (40.0, 24.0, 18.0, 5.0, 2.0)] == [28.0, 24.0, 14.0, 5.0, 0.0]


def test_where_there_is_no_cache_no_time_is_left_for_one():
    packing = Packing({AHEAD: 20.0}, loaded_s=8.0)
    assert packing.limit_s(AHEAD, 20.0) == 20.0
    assert [packing.reserve_s(left_s) for left_s in (40.0, 24.0, 14.0)] == [28.0, 24.0, 0.0]


def test_what_packing_takes_is_for_the_runtime_that_packs_to_say():
    trials = [baseline(), trial(1, startup_s=20.0)]
    takes_s = packing_of(bench_with(90.0), trials[1], trials).takes_s
    around_s = 1.0 + 0.5 + 0.5  # a process starts, loads the model and verifies
    assert takes_s[AHEAD] == pytest.approx(around_s + 11.0 + 0.5 * 20.0 + 1.0 + 100 * 0.01)
    assert takes_s[CARRIED] == pytest.approx(around_s + 2.0 + 0.15 * 20.0)
    finals = (measurement(0.5, startup_s=1.5),)
    again = packing_of(bench_with(90.0), trial(1, startup_s=20.0, finals=finals), trials).takes_s
    assert again[CARRIED] == pytest.approx(around_s + 1.5)
    alone = replace(trials[1], plan=Plan(runtime=AHEAD.runtime))
    assert list(packing_of(bench_with(90.0), alone, trials).takes_s) == [AHEAD]


def test_by_default_packing_compiles_once_more():
    class Other(Kind):
        name = "other"
        meaning = "a program"

    assert Other().packing_s(Compiled("cpu", cold_s=7.0, whole_s=20.0)) == 7.0


def test_what_is_kept_follows_what_compiling_took():
    quickly, slowly = (
        kept_for_packing_s(bench_with(900.0, 1000.0), [baseline(), trial(1, startup_s=startup_s)])
        for startup_s in (600.0, 1200.0)
    )
    assert 300.0 <= quickly < slowly <= 900.0


def test_never_less_is_kept_than_the_strategys_share():
    assert kept_for_packing_s(bench_with(900.0, 1000.0), [baseline(), trial(1, startup_s=1.0)]) == 300.0


def test_a_part_that_compiles_quickly_is_packed_whole():
    plain = trial(1, 0.6, origin="plain", startup_s=900.0)
    part = trial(2, 0.5, startup_s=1.0)
    alone = kept_for_packing_s(bench_with(900.0, 1000.0), [baseline(), part])
    assert kept_for_packing_s(bench_with(900.0, 1000.0), [baseline(), plain, part]) > alone


def test_nothing_is_kept_where_only_eager_candidates_may_win():
    eager = replace(trial(1, 0.8), plan=Plan(threads=1))
    slower = trial(2, 1.5)
    assert kept_for_packing_s(bench_with(90.0), [baseline(), eager, slower]) == 0.0
    assert kept_for_packing_s(bench_with(90.0), [baseline(), eager, slower], to_come=True) == 30.0
    assert kept_at_first_s(Plan()) == 0.0
    assert kept_at_first_s(compiled()) > 0.0
