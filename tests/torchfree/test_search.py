"""The search, with a runner that answers from a table."""

import io
from pathlib import Path

import optuna
import pytest
from builders import environment, failure, profile, workload
from fakes import FakeClock, FakeRunner
from rich.console import Console

from autocompile.core.document import Document
from autocompile.core.environment import GpuKind
from autocompile.core.errors import BudgetTooSmall, InvalidValue, InvalidWorkload, RunnerError
from autocompile.core.goal import Goal
from autocompile.core.profile import GraphBreak, RepeatedBlock
from autocompile.core.progress import Silence
from autocompile.core.serde import from_json, to_json
from autocompile.report.progress import LiveProgress
from autocompile.report.recheck import recheck_lines
from autocompile.runtime.inductor.settings import settings_of
from autocompile.scratch import Scratch
from autocompile.search.ledger import Ledger
from autocompile.search.recheck import recheck
from autocompile.search.run import Bench, Settings
from autocompile.search.session import run_study
from autocompile.search.strategy import load_strategy
from autocompile.search.study.opening import sqlite_url

BLOCKS = (RepeatedBlock("Layer", ("layers.0", "layers.1")),)


def usual(plan):
    """Compiling halves the time after 8 s, freezing gains a little more, reduced precision fails."""
    if plan.autocast:
        return failure("wrong_result", "verify", "output is off by 0.1")
    if plan.is_eager:
        return (1.0 if plan.threads == 0 else 1.6), 0.0
    return (0.35 if plan.settings.get("options", {}).get("freezing") else 0.5), 8.0


def run(
    answer=usual,
    *,
    budget_s=600.0,
    calls=1_000_000,
    strategy="balanced",
    storage=None,
    runner=None,
    goal=None,
    listener=None,
    **fields,
):
    listener = listener or Silence()
    clock = FakeClock() if runner is None else runner.clock
    runner = runner or FakeRunner(answer, clock)
    runner.keeps = Scratch()
    runner.directory = runner.keeps.path / "artifact"
    bench = Bench(
        workload=workload(**fields),
        environment=environment(),
        runner=runner,
        ledger=Ledger(budget_s, listener, clock=clock),
        listener=listener,
        settings=Settings(goal or Goal(calls=calls, deploy="jit"), load_strategy(strategy), 0, storage),
        reference="reference.pt",
        artifact=runner.directory,
    )
    return run_study(bench), runner


def said(document, action=""):
    return [f"{d.subject}: {d.reason}" for d in document.decisions if not action or d.action == action]


def test_baseline_first_then_plain_compile_and_the_best_wins():
    document, runner = run()
    assert runner.ran[0].is_eager
    assert runner.ran[1].runtime == "inductor"
    assert not runner.ran[1].settings
    assert document.winner.config["freezing"] is True
    assert document.winner.speedup.value == pytest.approx(1 / 0.35, rel=0.01)
    assert document.baseline.label == "eager"


def test_no_program_is_measured_twice_in_the_search():
    document, runner = run(strategy="thorough", budget_s=3000)
    screened = [plan.key for plan in runner.ran[: len(document.trials)]]
    assert len(set(screened)) == len(screened)
    assert "every distinct program was tried" in " ".join(said(document, "stopped"))


def test_the_document_is_json_and_back():
    document, _ = run()
    assert from_json(to_json(document), Document) == document


def test_wrong_results_are_kept_and_never_win():
    document, _ = run(lambda plan: failure("wrong_result", "verify", "off") if not plan.is_eager else (1.0, 0.0))
    assert document.winner.label == "eager"
    wrong = [entry for entry in document.trials if entry.verdict == "wrong result"]
    assert wrong
    assert all(entry.failure.message == "off" for entry in wrong)


def test_few_calls_leave_it_eager_and_the_envelope_tells_from_when_on_it_pays():
    document, _ = run(calls=1000)
    assert document.winner.label == "eager"
    assert [segment.label for segment in document.envelope] == ["eager", "inductor freezing=True"]
    second = document.envelope[1]
    assert second.break_even == pytest.approx(8 / (0.01 * 0.65), rel=0.02)
    assert second.break_even < second.from_calls, "eager is simpler, and stays until it is surely behind"


def test_a_compile_that_can_never_pay_back_is_ended():
    document, runner = run(lambda plan: (1.0, 0.0) if plan.is_eager else (0.1, 100.0), calls=200)
    assert runner.limits[1].compile_s == pytest.approx(200 * 0.01, rel=0.01)
    assert any("compiling alone took more than" in line for line in said(document, "stopped"))
    assert document.winner.label == "eager"


def test_the_budget_is_kept_and_its_end_is_said():
    document, runner = run(budget_s=60.0)
    assert runner.clock.now <= 60.0
    assert any("before the finals" in line for line in said(document, "stopped"))


def test_finals_measure_the_best_the_baseline_and_plain_compile_again():
    document, _ = run(budget_s=3000)
    processes = {entry.label: entry.processes for entry in document.trials if entry.processes > 1}
    assert processes["eager"] == 3
    assert processes["inductor"] == 3
    assert processes[document.winner.label] == 3
    assert len(processes) >= 4


def test_who_is_far_behind_is_not_measured_again():
    document, _ = run(
        lambda plan: (0.1, 1.0) if plan.settings.get("options", {}).get("freezing") else (1.0, 1.0), budget_s=3000
    )
    assert {entry.label for entry in document.trials if entry.processes > 1} >= {"eager", "inductor"}
    assert all(entry.processes == 1 for entry in document.trials if entry.label == "inductor threads=1")
    assert any("too far behind to win" in line for line in said(document, "narrowed"))


def test_without_a_compiler_eager_configurations_are_tried_and_the_reason_is_said():
    clock = FakeClock()
    document, runner = run(runner=FakeRunner(usual, clock, toolchain_problem="no C++ compiler"))
    assert not any(not plan.is_eager for plan in runner.ran)
    assert len(runner.ran) > 2
    assert any("no C++ compiler" in line for line in said(document))


def test_a_baseline_that_fails_is_the_users_to_mend():
    with pytest.raises(InvalidWorkload, match="the baseline itself fails: it broke"):
        run(lambda _plan: failure())


def test_a_model_that_rejects_its_inputs_is_said():
    runner = FakeRunner(
        usual, FakeClock(), profiled=failure(message="TypeError: missing argument (net.py:3 in forward)")
    )
    with pytest.raises(InvalidWorkload, match=r"net: the model fails on its own inputs: TypeError: missing argument"):
        run(runner=runner)


def test_a_budget_too_small_for_the_baseline():
    with pytest.raises(
        BudgetTooSmall, match=r"budget: .* ended before the baseline was measured; give at least twice as much time"
    ):
        run(lambda _plan: failure("timeout", "timing", "killed"))


def test_stopping_by_hand_keeps_the_best_so_far():
    seen = []

    def impatient(plan):
        seen.append(plan)
        return usual(plan) if len(seen) < 4 else KeyboardInterrupt()

    document, _ = run(impatient)
    assert not document.complete
    assert document.stopped == "interrupted by the user"
    assert document.winner.plan.is_eager is False


def test_stopping_before_the_baseline_leaves_nothing_to_say():
    with pytest.raises(KeyboardInterrupt):
        run(lambda _plan: KeyboardInterrupt())


def test_a_stopped_run_goes_on_and_repeats_nothing(tmp_path):
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    count = 0

    def stops_at_five(plan):
        nonlocal count
        count += 1
        return usual(plan) if count < 5 else KeyboardInterrupt()

    first, one = run(stops_at_five, storage=storage, strategy="quick")
    second, two = run(storage=storage, budget_s=3000, strategy="quick")
    finished = {plan.key for plan in one.ran[:-1]}
    screened_again = [plan for plan in two.ran[: len(second.trials) - len(finished)] if plan.key in finished]
    assert not screened_again
    assert any("continues with 4 trials" in line for line in said(second))
    assert {e.number for e in first.trials} < {e.number for e in second.trials}


def test_a_finished_study_has_nothing_left_to_do(tmp_path):
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    run(storage=storage, budget_s=5000, strategy="quick")
    _document, again = run(storage=storage, budget_s=5000, strategy="quick")
    assert again.ran == []


def test_what_had_too_little_time_is_tried_again_with_more(tmp_path):
    storage = f"sqlite:///{tmp_path / 'study.db'}"

    def slow(plan):
        return (1.0, 0.0) if plan.is_eager else (0.5, 60.0)

    short, _ = run(slow, storage=storage, budget_s=50.0, strategy="quick")
    assert short.winner.label == "eager"
    long, _ = run(slow, storage=storage, budget_s=2000.0, strategy="quick")
    assert long.winner.label == "inductor"


def test_another_workload_or_machine_is_another_study(tmp_path):
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    run(storage=storage, budget_s=60)
    run(storage=storage, budget_s=60, fingerprint="0" * 64)
    assert len(optuna.get_all_study_names(storage)) == 2


def test_a_study_is_of_the_gpu_that_is_used(tmp_path):
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    names = [("H100", 132), ("H100", 132), ("H100 MIG 1g.10gb", 16)]
    for name, multiprocessors in names:
        document, _ = run(storage=storage, budget_s=60, gpus=(GpuKind(name, "9.0", multiprocessors),))
        assert document.workload.gpus[0].name == name
    studies = [optuna.load_study(study_name=one, storage=storage) for one in optuna.get_all_study_names(storage)]
    assert {study.user_attrs["device"] for study in studies} == {name for name, _count in names}
    assert len(studies) == 2


def test_the_study_is_readable_with_optunas_own_tools(tmp_path):
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    document, _ = run(storage=storage, strategy="quick")
    (name,) = optuna.get_all_study_names(storage)
    study = optuna.load_study(study_name=name, storage=storage)
    assert study.best_value == pytest.approx(document.winner.amortized_ms / 1e3, rel=0.05)
    labels = {t.user_attrs.get("label") for t in study.trials}
    assert {"eager", "inductor"} <= labels


def test_seeds_are_ordered_by_the_profile_and_the_reason_is_kept():
    broken = profile(blocks=BLOCKS, graph_count=3, graph_breaks=(GraphBreak("net.py", 3, "print"),))
    document, runner = run(runner=FakeRunner(usual, FakeClock(), profiled=broken), budget_s=300, strategy="thorough")
    assert settings_of(runner.ran[2]).scope == ("layers.0", "layers.1")
    assert "its repeated blocks are tried first" in " ".join(said(document, "seeded"))
    assert any("instructions for bf16" in line for line in said(document, "seeded"))


def test_blocks_do_not_come_first_where_the_breaks_are_around_all_of_them():
    broken = profile(blocks=BLOCKS, graph_count=2, graph_breaks=(GraphBreak("net.py", 3, "print"),))
    document, _runner = run(runner=FakeRunner(usual, FakeClock(), profiled=broken), budget_s=300, strategy="thorough")
    assert "its repeated blocks are tried first" not in " ".join(said(document, "seeded"))


def test_a_starved_gpu_has_cuda_graphs_tried_first():
    starved = profile(busy_share=0.46)
    for strategy in ("thorough", "balanced"):
        document, runner = run(
            runner=FakeRunner(usual, FakeClock(), profiled=starved), device="cuda:0", strategy=strategy
        )
        first = next(plan for plan in runner.ran[2:] if not plan.is_eager)
        assert settings_of(first).options.get("triton.cudagraphs")
        action = "seeded" if strategy == "thorough" else "chosen"
        assert "launches" in said(document, action)[0]


def test_time_is_accounted_for_whole():
    document, runner = run()
    assert sum(document.time_spent_s.values()) >= runner.clock.now - 0.01
    assert set(document.time_spent_s) >= {"compiling", "timing", "verifying", "overhead"}


def test_caches_of_failed_candidates_are_dropped():
    document, runner = run()
    failed = {entry.plan.key for entry in document.trials if entry.status == "failed"}
    assert failed
    assert set(runner.forgotten) == failed


def again(document, answer, listener=None, runner=None, about=None, **fields):
    runner = runner or FakeRunner(answer, FakeClock(), **fields)
    bench = Bench(
        workload=workload(**(about or {})),
        environment=environment(torch="2.14.0"),
        runner=runner,
        ledger=Ledger(600, Silence(), clock=runner.clock),
        listener=listener or Silence(),
        settings=Settings(Goal(), load_strategy("balanced"), 0, None),
        reference="reference.pt",
    )
    return recheck(bench, document, Path("rec"))


def test_a_recommendation_measured_again():
    document, _ = run()
    same = again(document, usual)
    assert same.verdict == "good"
    assert same.changes == ("torch: 2.13.0 then, 2.14.0 now",)
    assert same.now.value == pytest.approx(same.then.value, rel=0.01)
    slower = again(document, lambda _plan: (0.6, 8.0))
    assert slower.verdict == "regression"
    assert "slower than before, by more than noise explains" in "\n".join(recheck_lines(slower))
    wrong = again(document, lambda _plan: failure("wrong_result", "verify", "output is off"))
    assert (wrong.verdict, wrong.fault) == ("wrong", "wrong result: output is off")
    foreign = again(document, lambda _plan: failure("invalid", "build", "packed with torch 2.13.0, and this is 2.14.0"))
    assert foreign.verdict == "unusable"
    assert "no longer usable on this machine" in "\n".join(recheck_lines(foreign))


def test_measuring_again_is_told_as_tuning_is():
    document, _ = run()
    console = Console(file=io.StringIO(), width=200)
    with LiveProgress(600, console) as live:
        again(document, usual, live)
    told = console.file.getvalue().splitlines()
    assert len(told) == 3
    for number, line in enumerate(told, 1):
        assert f"process {number} of 3: inductor freezing=True: 2.86x" in line


def test_a_tolerance_that_the_baseline_itself_misses_is_said_before_the_search():
    runner = FakeRunner(usual, FakeClock())
    with pytest.raises(InvalidValue, match=r"tolerance: 1e-09 cannot be met: the baseline itself is off by 1e-07"):
        run(runner=runner, goal=Goal(tolerance=1e-9))
    assert runner.ran == []


def test_who_is_surely_behind_is_given_a_rival():
    _document, runner = run(calls=1_000_000)
    assert runner.rivals[:2] == [0.0, 0.0]
    assert all(0.35 < rival < 1.0 for rival in runner.rivals[2:5])


def test_a_study_lies_wherever_its_path_says(tmp_path):
    folder = tmp_path / "a b%20c#d?e"
    folder.mkdir()
    run(storage=sqlite_url(folder / "study.db"), strategy="quick", budget_s=60)
    assert (folder / "study.db").exists()


def test_a_finalist_that_fails_in_a_fresh_process_cannot_win():
    seen = {}

    def fails_later(plan):
        seen[plan.key] = seen.get(plan.key, 0) + 1
        if plan.settings.get("options", {}).get("freezing") and seen[plan.key] > 1:
            return failure("wrong_result", "verify", "off, this time")
        return usual(plan)

    document, runner = run(fails_later)
    assert document.winner.label == "inductor"
    screened = [plan.key for plan in runner.ran if plan.settings.get("options", {}).get("freezing")]
    assert len(screened) > len(set(screened)), "a frozen candidate was a finalist"
    assert max(screened.count(key) for key in screened) == 2, "who fails in a final is not asked again"
    assert any(entry.failure and entry.failure.message == "off, this time" for entry in document.trials)


def test_who_is_likely_to_fail_as_a_finalist_did_comes_after_all_others():
    """The same program in other threads, which reads best when the first one is out."""
    ran = []

    def fails_later(plan):
        ran.append(plan)
        if plan.is_eager:
            return (1.0, 0.0)
        options = plan.settings.get("options", {})
        if options.get("freezing") and not options.get("max_autotune") and not settings_of(plan).dynamic:
            if ran.count(plan) > 1:
                return failure("wrong_result", "verify", "off, this time")
            return (0.2 + 0.002 * plan.threads, 8.0)
        return (0.5, 8.0)

    document, _runner = run(fails_later, budget_s=6000)
    screened = next(place for place, plan in enumerate(ran) if ran.index(plan) < place)
    finals, kin = ran[screened:], [plan for plan in ran if plan.threads and ran.count(plan) > 1 and not plan.is_eager]
    first = finals[0]
    assert (first.threads, first.settings.get("options", {}).get("freezing")) == (0, True)
    alike = [plan for plan in kin if plan.settings == first.settings]
    assert alike, "it has its final all the same"
    before = finals[: finals.index(alike[0])]
    assert before.count(next(plan for plan in before if not plan.is_eager and plan.settings != first.settings)) == 3
    assert any("which differs from it only in threads, failed in its final" in line for line in said(document, "noted"))
    assert document.winner.speedup.value == pytest.approx(2, rel=0.02)


def test_another_tolerance_is_another_study(tmp_path):
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    run(storage=storage, budget_s=60, goal=Goal(tolerance=5e-2))
    run(storage=storage, budget_s=60, goal=Goal(tolerance=1e-4))
    assert len(optuna.get_all_study_names(storage)) == 2


def test_a_broken_runner_ends_the_search_but_not_the_verdict():
    seen = []

    def breaks(plan):
        seen.append(plan)
        return usual(plan) if len(seen) < 4 else RunnerError("the process that starts trials ended")

    document, _ = run(breaks)
    assert not document.complete
    assert document.stopped == "the process that starts trials ended"
    assert document.winner.plan.is_eager is False
