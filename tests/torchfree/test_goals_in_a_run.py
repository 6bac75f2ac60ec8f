"""The effect of a goal on a run: another winner, another envelope, another batch."""

import json
from itertools import cycle

import optuna
import pytest
from builders import failure
from fakes import LOAD_S, FakeClock, FakeRunner, packs_a_program, packs_either
from msgspec.structs import replace
from servings import CARRIED
from test_search import run, said, usual
from typer.testing import CliRunner

from autocompile.artifact.directory import write_recommendation
from autocompile.cli import app as cli
from autocompile.core.errors import InvalidValue
from autocompile.core.goal import Goal
from autocompile.core.job import BatchPoint, BatchProbe
from autocompile.report.html import as_page
from autocompile.report.story import story
from autocompile.report.text import as_text
from autocompile.search.judge.standings import at_calls


def test_one_study_answers_for_every_number_of_calls():
    document, _ = run(calls=1_000_000)
    assert at_calls(document, 1).winner.label == "eager"
    assert at_calls(document, 10**6).winner.label == document.winner.label == "inductor freezing=True"
    few = at_calls(document, 1)
    assert few.winner.rank == 1
    assert few.calls == few.goal.calls == 1
    assert "compiled = model" in few.snippet
    assert {entry.number for entry in few.trials} == {entry.number for entry in document.trials}
    freezing = next(entry for entry in few.trials if entry.label == "inductor freezing=True")
    assert (freezing.verdict, freezing.amortized_ms) == ("slower", pytest.approx(8003.5, rel=0.01))


def test_where_lines_cross_the_break_even_has_an_interval():
    document, _ = run(calls=1000)
    (first, second) = document.envelope
    assert second.from_low < second.break_even < second.from_high
    assert first.to_calls == second.from_calls - 1
    assert f"eager up to {first.to_calls:,} calls; then inductor freezing=True" in as_text(document)


def test_show_judges_for_a_number_of_calls(tmp_path):
    document, runner = run()
    write_recommendation(tmp_path, document, runner.directory, as_page(document))
    shown = CliRunner().invoke(cli.app, ["show", str(tmp_path), "--calls", "1", "--json"])
    assert json.loads(shown.stdout)["winner"]["label"] == "eager"
    refused = CliRunner().invoke(cli.app, ["show", str(tmp_path), "--calls", "0"])
    assert isinstance(refused.exception, InvalidValue)


def test_the_page_draws_the_envelope():
    document, _ = run(calls=1000)
    page = as_page(document)
    assert page.count("<polyline") == len(document.envelope)
    assert f"{document.envelope[1].from_calls:,}</text>" in page


def test_a_latency_goal_counts_no_start_up():
    document, _ = run(
        lambda plan: (0.4, 1e5) if not plan.is_eager else (1.0, 0.0), budget_s=1e7, goal=Goal(objective="latency")
    )
    assert document.winner.label == "inductor"
    assert "start-up not counted" in document.reason


def test_a_limit_on_latency_rules_out_who_is_beyond_it():
    document, _ = run(goal=Goal(max_latency="4ms"), budget_s=3000)
    assert document.is_feasible
    assert document.winner.label == "inductor freezing=True"
    assert next(e for e in document.trials if e.label == "inductor").verdict == "beyond a limit"
    assert document.baseline.excess["max_latency"] == pytest.approx(1.5, rel=0.01)


def test_what_starts_too_slowly_is_ended_and_cannot_win():
    document, runner = run(goal=Goal(max_startup="5s", deploy="jit"), budget_s=3000)
    assert document.winner.label == "eager"
    assert runner.limits[1].compile_s == pytest.approx(5.0, abs=0.02)  # and the pass itself
    assert any("more than the 5 s that a start may take" in line for line in said(document, "stopped"))


def test_where_nothing_keeps_the_limits_the_nearest_is_named():
    document, _ = run(goal=Goal(max_latency="2ms"), budget_s=3000)
    assert not document.is_feasible
    assert document.reason.startswith("no measured candidate meets the constraints; inductor freezing=True")
    assert "misses max_latency by 7" in document.reason
    assert "no measured candidate meets" in as_text(document).splitlines()[0]


def test_limits_are_constraints_of_optunas(tmp_path):
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    run(goal=Goal(max_latency="4ms"), storage=storage, strategy="quick")
    (name,) = optuna.get_all_study_names(storage)
    study = optuna.load_study(study_name=name, storage=storage)
    found = {t.user_attrs["label"]: t.constraints for t in study.trials if "label" in t.user_attrs and t.values}
    assert found["eager"]["max_latency"] > 0 > found["inductor freezing=True"]["max_latency"]
    assert study.metric_names == ["seconds per call, start-up included"]
    assert study.user_attrs["workload"] == "net"


def test_what_is_loaded_starts_quickly_and_its_compile_is_paid_once_for_all_processes():
    def document_for(processes):
        runner = FakeRunner(usual, FakeClock(), packs=packs_a_program)
        goal = Goal(calls=1000, processes=processes)
        return run(runner=runner, goal=goal, budget_s=3000)[0]

    alone = document_for(1)
    assert alone.winner.label == "eager", "8 s of compiling are more than 1,000 calls of 10 ms gain"
    many = document_for(100)
    assert many.winner.label == "aot freezing=True"
    assert many.winner.startup_s == pytest.approx(LOAD_S)
    assert many.winner.packing_s == pytest.approx(8.0 / 100)
    assert many.winner.amortized_ms == pytest.approx(3.5 + (LOAD_S + 0.08), rel=0.01)


def test_what_starts_from_a_cache_starts_the_compiler_each_time():
    runner = FakeRunner(usual, FakeClock(), packs=packs_either)
    runner.packs = lambda task: packs_either(task) if task.serving == CARRIED else failure("unsupported", "pack", "no")
    document, _ = run(runner=runner, goal=Goal(calls=10**6), budget_s=3000)
    assert (document.winner.label, document.artifact.serving) == ("inductor freezing=True", CARRIED)
    assert document.winner.startup_s == pytest.approx(2 + 0.15 * 8)
    assert document.winner.packing_s == pytest.approx(8.0)


def test_what_cannot_be_packed_compiles_in_every_process():
    document, _ = run(goal=Goal(calls=10**6, processes=10), budget_s=3000)
    assert document.artifact.start == "compile"
    assert document.winner.startup_s == pytest.approx(8.0)
    assert document.winner.packing_s == 0.0


def test_who_deploys_jit_loads_nothing():
    runner = FakeRunner(usual, FakeClock(), packs=packs_a_program)
    document, _ = run(runner=runner, goal=Goal(calls=10**6, deploy="jit"), budget_s=3000)
    assert (document.winner.label, document.artifact.start) == ("inductor freezing=True", "compile")
    assert document.without_artifact is None
    assert any("a goal that deploys 'jit' has no artifact" in line for line in said(document, "narrowed"))


def per_sample(plan):
    """A bigger batch takes less a sample, compiled or not, down to a floor."""
    batch = plan.batch or 1
    return (0.4 if not plan.is_eager else 1.0) * (0.2 + 0.8 / batch), 8.0 if not plan.is_eager else 0.0


def test_the_best_batch_and_the_best_at_the_given_one_are_both_told():
    document, runner = run(per_sample, goal=Goal(objective="throughput", batch=[1, 8]), budget_s=5000)
    assert runner.probed[0].sizes == (1, 8)
    assert document.winner.batch == 8
    assert document.winner_as_given.label == "inductor"
    assert document.winner.speedup.value == pytest.approx(1 / (0.4 * 0.3), rel=0.02)
    assert "in batches of 8; at your batch size inductor: 2.50x" in " ".join(as_text(document).split())


def as_probed(task):
    """What `per_sample` takes in eager, as a sweep finds it."""
    return BatchProbe(1, "", tuple(BatchPoint(n, 10.0 * (0.2 + 0.8 / n), "") for n in task.sizes or (1, 8, 64)))


def with_batches(max_latency, **fields):
    runner = FakeRunner(per_sample, FakeClock(), probes=as_probed)
    goal = Goal(objective="throughput", max_latency=max_latency, **{"batch": [1, 8, 64], **fields})
    return run(runner=runner, goal=goal, budget_s=5000)


def tried(runner, batch):
    return {"compiled" if not plan.is_eager else "eager" for plan in runner.ran if plan.batch == batch}


def test_a_size_that_is_beyond_the_limit_in_eager_is_tried_compiled_only():
    document, runner = with_batches("20ms")
    assert tried(runner, 8) == {"compiled"}
    assert "batch=8 in eager: 24 ms a call in eager: beyond max_latency 20 ms" in said(document, "narrowed")
    assert (document.winner.batch, document.is_feasible) == (8, True)


def test_a_size_that_no_speed_up_so_far_brings_within_the_limit_is_not_tried():
    document, runner = with_batches("6.2ms")
    assert tried(runner, 8) == set()
    reason = "24 ms a call in eager, and the best speed-up so far is 2.5x, far too little: beyond max_latency 6.2 ms"
    assert said(document, "narrowed").count(f"batch=8: {reason}") == 1
    assert document.winner.batch is None


def test_a_size_that_no_compiler_brings_within_the_limit_takes_no_other_ones_place():
    document, runner = with_batches("20ms", batch="tune")
    reason = "136 ms a call in eager, and compiling is not expected to give more than 4x: beyond max_latency 20 ms"
    assert f"batch=64: {reason}" in said(document, "narrowed")
    assert tried(runner, 64) == set()
    assert tried(runner, 8) == {"compiled"}


def test_without_a_limit_on_latency_every_size_is_tried():
    document, runner = run(per_sample, goal=Goal(objective="throughput", batch=[1, 8]), budget_s=5000)
    assert tried(runner, 8) == {"compiled", "eager"}
    assert not any(line.startswith("batch=") for line in said(document, "narrowed"))


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_sampler_may_ask_for_a_size_beyond_the_limit_and_gets_none(sampler, tmp_path):
    strategy = tmp_path / "sampled.toml"
    strategy.write_text(f"[search]\nsampler = '{sampler}'\n[dimensions]\nruntime = []\nbatch = []\nfreezing = []\n")
    runner = FakeRunner(per_sample, FakeClock(), probes=as_probed)
    goal = Goal(objective="throughput", max_latency="20ms", batch=[8, 64])
    run(runner=runner, goal=goal, budget_s=5000, strategy=str(strategy))
    assert tried(runner, 64) == set()
    assert tried(runner, 8) == {"compiled"}


def test_samples_that_influence_each_other_keep_their_batch():
    dependent = FakeRunner(usual, FakeClock(), probes=lambda _task: BatchProbe(4, "samples influence each other", ()))
    document, runner = run(runner=dependent, goal=Goal(batch="tune"))
    assert not any(plan.batch for plan in runner.ran)
    assert "batch: kept as given: samples influence each other" in said(document, "narrowed")
    with pytest.raises(InvalidValue, match="batch: samples influence each other; keep the batch fixed"):
        run(runner=dependent, goal=Goal(batch=[8]))


def test_a_size_that_memory_does_not_hold_is_kept_and_the_others_go_on():
    def probes(task):
        if not task.below:
            return failure("out_of_memory", "batch 64", "killed by the system")
        return BatchProbe(1, "", (BatchPoint(8, 1.0, ""), BatchPoint(16, None, "out of memory")))

    document, runner = run(
        runner=FakeRunner(per_sample, FakeClock(), probes=probes), goal=Goal(batch=[8, 16, 64]), budget_s=5000
    )
    assert runner.probed[1].below == 64
    assert {plan.batch for plan in runner.ran} == {0, 8}
    assert "batch=16: out of memory" in said(document, "skipped")
    assert "batch=64: killed by the system" in said(document, "skipped")


def scattered(ratios, by):
    """Processes that differ by this share, as processes do, around ratios that a plan's label finds."""
    biases = {}

    def answer(plan):
        if plan.is_eager:
            return 1.0, 0.0
        bias = next(biases.setdefault(plan.key, cycle((1 - by, 1.0, 1 + by))))
        return ratios["freezing" if plan.settings.get("options", {}).get("freezing") else "plain"] * bias, 8.0

    return answer


def test_finalists_that_are_not_told_apart_go_on():
    document, _ = run(scattered({"freezing": 0.50, "plain": 0.51}, by=0.02), budget_s=20_000)
    assert any("not distinguishable yet" in line for line in said(document, "noted"))
    plain = next(e for e in document.trials if e.label == "inductor")
    assert plain.processes > 3
    assert document.winner.config["freezing"]
    assert plain.verdict == "faster"


class Disturbed(FakeRunner):
    """The first `busy` processes of each candidate are timed while other programs use the host."""

    busy = 0

    def measure(self, task, limits):
        reply = super().measure(task, limits)
        if not hasattr(reply, "ratio"):
            return reply
        contamination = replace(reply.contamination, noisy=self.ran.count(task.plan) <= self.busy)
        return replace(reply, contamination=contamination)


@pytest.mark.parametrize(("busy", "winner"), [(0, "inductor"), (6, "inductor"), (99, "eager")])
def test_what_was_only_timed_beside_other_programs_goes_on_until_the_host_is_quiet(busy, winner, tmp_path):
    strategy = tmp_path / "two.toml"
    strategy.write_text("[dimensions]\nruntime = []\n[finals]\nprocesses = 3\nat_most = 9\n")
    runner = Disturbed(lambda plan: (1.0, 0.0) if plan.is_eager else (0.5, 8.0), FakeClock())
    runner.busy = busy
    document, _ = run(runner=runner, goal=Goal(calls=10**6, deploy="jit"), budget_s=20_000, strategy=str(strategy))
    assert document.winner.label == winner
    assert any("timed next to other programs: inductor" in line for line in said(document, "noted")) == bool(busy)
    assert ("tune again while the host is quiet" in document.reason) == (winner == "eager")


def test_finalists_that_are_surely_alike_do_not():
    document, _ = run(scattered({"freezing": 0.500, "plain": 0.501}, by=0.005), budget_s=20_000)
    assert document.winner.label == "inductor"
    assert document.winner.processes == 3


def test_the_story_of_a_run_has_its_numbers():
    document, _ = run(calls=100_000, budget_s=3000)
    told = "\n".join(story(document))
    assert "net takes 10 ms a call in eager" in told
    assert "The winner is inductor freezing=True: 2.86x eager's speed (2." in told
    assert "is paid back after 1,2" in told
    single = document.winner.speedup_of_one_process
    assert f"A single process may run at {single.low:.2f}x to {single.high:.2f}x eager's speed (95%)." in told
    assert "wrong result" in told
    assert 7 <= len(told.splitlines()) <= 16
    eager = "\n".join(story(run(calls=10)[0]))
    assert "Eager wins" in eager
    assert "A single process" not in eager
