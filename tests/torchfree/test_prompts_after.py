"""The second study of a model that generates: the prompts, after the decode steps, in time that was kept for them."""

import dataclasses

import pytest
from builders import environment, failure, measurement, workload
from fakes import FakeClock, FakeRunner, packs_a_program
from msgspec.structs import replace
from test_search import usual

from autocompile.artifact.integrity import manifest_digest, open_manifest
from autocompile.core.goal import Goal
from autocompile.core.notices import of_prompts
from autocompile.core.outcome import Generated
from autocompile.core.progress import Silence
from autocompile.core.workload import GenerationEntry
from autocompile.report.text import as_text
from autocompile.search.ledger import Ledger
from autocompile.search.prompts import keep_time_for_prompts, named, with_prompts
from autocompile.search.run import Bench, Settings
from autocompile.search.session import run_study
from autocompile.search.strategy import load_strategy

SEEN = GenerationEntry(
    module="Net", texts=10, prompt_tokens=50, new_tokens=490, prefill_share=0.25, capacity=64, layers=2
)
TEXTS = Generated(tokens=60, speedup=measurement(0.5).ratio.inverse(), tokens_per_s=20.0, baseline_tokens_per_s=10.0)


class Runner(FakeRunner):
    """Answers `texts` when texts are to be generated with both results; prompts are answered by `prompts`."""

    texts: object = TEXTS
    prompts: object = staticmethod(usual)

    def measure(self, task, limits):
        if task.prompts:
            return self.texts if not isinstance(self.texts, Generated) else self._generated(task)
        self.answer = self.prompts if task.workload.kind == "prompt" else usual
        return super().measure(task, limits)

    def _generated(self, task):
        self.together = task
        return replace(measurement(0.5), generated=self.texts)


def bench_for(tmp_path, budget_s=600.0, **answers):
    clock = FakeClock()
    runner = Runner(usual, clock, packs=packs_a_program)
    for name, answer in answers.items():
        setattr(runner, name, answer)
    (tmp_path / "artifact").mkdir()
    (tmp_path / "reference").mkdir()
    prompts = workload(
        kind="prompt", generation=replace(SEEN, part="prompt"), name="net, prompts", fingerprint="p" * 64
    )
    return Bench(
        workload=workload(kind="generation", generation=SEEN, prompts=prompts),
        environment=environment(),
        runner=runner,
        ledger=Ledger(budget_s, Silence(), clock=clock),
        listener=Silence(),
        settings=Settings(Goal(calls=49_000_000), load_strategy("quick"), 0, None),
        reference=tmp_path / "reference" / "reference.pt",
        artifact=tmp_path / "artifact",
    )


def tuned(bench):
    keep_time_for_prompts(bench)
    return with_prompts(bench, run_study(bench))


def test_prompts_are_a_study_of_their_own_and_the_manifest_names_its_artifact(tmp_path):
    bench = bench_for(tmp_path)
    document, prompts = tuned(bench)
    document = named(bench, document, prompts)
    assert document.prompts.label == prompts.document.winner.label != "eager"
    assert (document.prompts.left, document.prompts.generated) == ("", TEXTS)
    assert prompts.document.goal.calls == 1_000_000
    assert bench.runner.together.prompts == str(prompts.artifact)
    assert open_manifest(bench.artifact).prompts == manifest_digest(prompts.artifact)
    assert document.artifact.digest == manifest_digest(bench.artifact)
    assert document.budget_s == pytest.approx(0.65 * 600)
    told = " ".join(as_text(document).split())
    assert f"Prompts: {document.prompts.label}, 2.86x" in told
    assert "20 tokens a second, eager 10" in told


def test_what_won_for_decode_steps_is_tried_first(tmp_path):
    document, prompts = tuned(bench_for(tmp_path))
    tried = [decision.subject for decision in prompts.document.decisions if decision.action == "seeded"]
    assert tried[0].split()[0] == document.winner.config["runtime"]


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        (
            {"texts": failure("wrong_result", "verify", "generate returns other tokens")},
            "wrong result: generate returns",
        ),
        ({"prompts": lambda plan: (1.0 if plan.is_eager else 1.2, 1.0)}, "no candidate is faster than eager"),
    ],
    ids=["other tokens", "nothing gained"],
)
def test_prompts_are_left_to_the_model(tmp_path, answers, why):
    bench = bench_for(tmp_path, **answers)
    document, prompts = tuned(bench)
    assert document.prompts.left.startswith(why)
    assert document.winner.label != "eager"
    assert named(bench, document, prompts) == document
    assert not open_manifest(bench.artifact).prompts
    assert f"Prompts are left to the model itself: {why}" in " ".join(as_text(document).split())


def test_a_run_that_is_stopped_in_its_second_part_keeps_the_first(tmp_path):
    bench = bench_for(tmp_path, prompts=lambda _plan: KeyboardInterrupt())
    document, prompts = tuned(bench)
    assert prompts is None
    assert document.winner.label != "eager"
    assert (document.complete, document.prompts.left) == (False, "interrupted by the user")


def test_a_budget_that_is_too_small_is_told(tmp_path):
    bench = bench_for(tmp_path, budget_s=120.0)
    document, prompts = tuned(bench)
    assert prompts is None
    assert document.prompts is None
    assert document.budget_s == 120.0
    assert any(notice.endswith("give a budget of 3m or more") for notice in document.notices), document.notices


def test_without_prompts_nothing_is_kept(tmp_path):
    bench = bench_for(tmp_path)
    bench = dataclasses.replace(bench, workload=replace(bench.workload, prompts=None))
    document, prompts = tuned(bench)
    assert (prompts, document.prompts, document.budget_s) == (None, None, 600.0)


def test_a_goal_for_decode_steps_becomes_one_for_the_prompts_of_the_same_texts():
    assert Goal(calls=4900).for_prompts(SEEN).calls == 100
    assert Goal(calls=3).for_prompts(SEEN).calls == 1
    an_hour = Goal().for_prompts(SEEN)
    assert (an_hour.calls, an_hour.horizon_s) == (None, pytest.approx(1080))
    limited = Goal(max_latency="2ms", percentile=95, max_memory="1GB").for_prompts(SEEN)
    assert (limited.max_latency, limited.percentile, limited.max_memory) == (None, None, "1GB")
    assert Goal(objective="latency", percentile=99).for_prompts(SEEN).percentile == 99


def test_time_that_is_kept_is_part_of_the_next_run_and_notices_are_told_once():
    told = []
    listener = Silence()
    listener.on_notice = told.append
    clock = FakeClock()
    ledger = Ledger(100.0, listener, clock=clock)
    ledger.notice(of_prompts(0.3, 171.0))
    ledger.keep(40.0)
    clock.now += 50.0
    assert ledger.left_s() == pytest.approx(10.0)
    following = ledger.next(0.8)
    assert (following.left_s(), following.elapsed_s) == (pytest.approx(40.0), 0.0)
    following.notice(of_prompts(0.3, 171.0))
    assert len(told) == 1
