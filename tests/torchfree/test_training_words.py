"""Training: the open dimensions, the meaning of a goal, and the messages. No torch."""

import dataclasses
import re

import pytest
import test_search
from builders import environment, failure, profile, workload
from fakes import FakeClock, FakeRunner, packs_either
from msgspec.structs import replace
from test_search import again, run, said

from autocompile.artifact.directory import check_workload
from autocompile.artifact.integrity import open_manifest
from autocompile.core.errors import InvalidRecommendation, InvalidValue
from autocompile.core.goal import Goal
from autocompile.core.notices import of_workload
from autocompile.core.outcome import Failure, Learned, Measurement
from autocompile.core.plan import Plan
from autocompile.core.profile import RepeatedBlock
from autocompile.core.service import Service
from autocompile.core.step_profile import StepMemory, StepPhase, StepProfile
from autocompile.core.workload import TrainingEntry
from autocompile.report.brief import as_brief
from autocompile.report.html import as_page
from autocompile.report.learned import learned_words
from autocompile.report.limits import verdict_words
from autocompile.report.recheck import recheck_lines
from autocompile.report.service import service_lines
from autocompile.report.step_profile import step_lines
from autocompile.report.story import story
from autocompile.report.text import as_text
from autocompile.runtime.catalogue import kinds, open_space
from autocompile.runtime.inductor.settings import compiled, settings_of
from autocompile.runtime.snippet import snippet
from autocompile.search.judge.standings import at_calls
from autocompile.space.surroundings import Surroundings

ADAMW = TrainingEntry("AdamW", accumulate=2, clip_norm=1.0)
AROUND = Surroundings("cpu", 4, True, True, 3, loads_artifacts=False, training=ADAMW)
TRAINING = {"kind": "training", "training": ADAMW, "in_training_mode": True}
ALL = dict.fromkeys(("runtime", "mode", "amp", "memory_format", "threads", "freezing", "scope", "dynamic"), ())


def closed(around):
    return dict(open_space(around, ALL)[1])


def test_only_what_trains_is_open():
    space, left_out = open_space(AROUND, ALL)
    assert {plan.runtime for _candidate, plan in space.programs} == {one.name for one in kinds() if one.trains}
    assert {plan.optimizer for _candidate, plan in space.programs} == {"", "foreach", "fused", "compiled"}
    assert not any(settings_of(plan).options.get("freezing") for _c, plan in space.programs if not plan.is_eager)
    reasons = dict(left_out)
    assert reasons["runtime=aot"] == "it runs a model and does not train it"
    assert "changes the parameters at every step" in reasons["freezing=True"]
    assert "no loss scaling" in reasons["amp=fp16"]
    assert {"dynamic=marked", "dynamic=buckets"} <= set(reasons)


LBFGS = TrainingEntry("LBFGS", by_closure=True, without=dict.fromkeys(("foreach", "fused", "compiled"), "its own"))


def test_of_an_optimizer_that_calls_for_the_loss_precision_and_layout_stay():
    around = dataclasses.replace(AROUND, training=LBFGS, device_type="cuda")
    space, left_out = open_space(around, {**ALL, "float32": ()})
    plans = [plan for _candidate, plan in space.programs]
    assert {(plan.autocast, plan.float32, plan.memory_format, plan.optimizer) for plan in plans} == {("", "", "", "")}
    assert {plan.runtime for plan in plans} == {"eager", "inductor"}
    reasons = dict(left_out)
    for subject in ("amp=bf16", "float32=tf32"):
        assert reasons[subject].startswith("LBFGS relies on differences of losses and gradients")
    assert "flattens gradients in the order of their memory" in reasons["memory_format=channels_last"]


def test_autocast_has_nothing_to_do_in_double_precision():
    reasons = closed(dataclasses.replace(AROUND, double_precision=True))
    assert "in double precision" in reasons["amp=bf16"]


def test_calls_of_a_closure_are_never_called_steps():
    document, _runner = run(kind="closure", training=LBFGS, in_training_mode=True)
    for text in (as_text(document), as_brief(document), "\n".join(story(document))):
        assert "closure call" in text
        said = text.partition("The same in plain")[0]
        assert set(re.findall(r"\w+ steps?\b", said)) <= {"the step", "every step"}, said
    assert "def closure():" in document.snippet
    assert learned_words(Learned(32, 2.0, 1.0, 1.0, by_closure=True)).startswith("trained 32 closure calls alongside")
    phases = (StepPhase("backward", 0.6, 3.0), StepPhase("forward", 0.4, 2.0))
    told = "\n".join(step_lines(StepProfile(phases, StepMemory(4, 0, 4, 0, 8, 4, 20)), "closure call"))
    assert "time of a closure call" in told
    assert "memory of a closure call" in told
    service = Service("Net", "inductor", {"inductor": 40}, 1.0, 2.0, kind="closure")
    first, second = service_lines(document, [service], {})
    assert first == "Net as inductor: closure calls 40 by inductor"
    assert "2 ms a closure call after the first" in second


def test_what_is_called_has_no_optimizer():
    space, left_out = open_space(dataclasses.replace(AROUND, training=None), ALL)
    assert {plan.optimizer for _candidate, plan in space.programs} == {""}
    assert not any(subject.startswith("optimizer") for subject, _reason in left_out)


def test_a_loss_is_compiled_with_the_model_where_there_is_one_beside_it():
    assert "scope=with-loss" not in closed(AROUND)
    assert any(settings_of(plan).with_loss for _candidate, plan in open_space(AROUND, ALL)[0].programs)
    own = dataclasses.replace(AROUND, training=TrainingEntry("AdamW", own_loss=True))
    assert "computes its loss itself" in closed(own)["scope=with-loss"]
    called = dataclasses.replace(AROUND, training=None)
    assert "scope=with-loss" not in closed(called)
    assert not any(settings_of(plan).with_loss for _c, plan in open_space(called, ALL)[0].programs if not plan.is_eager)


def test_an_implementation_that_is_not_there_is_closed_for_its_reason():
    entry = TrainingEntry("Rprop", without={"fused": "Rprop has no fused implementation"})
    found = closed(dataclasses.replace(AROUND, training=entry))
    assert found["optimizer=fused"] == "Rprop has no fused implementation"
    assert "optimizer=foreach" not in found


def test_the_optimizers_step_is_compiled_with_torch_compile_or_by_it_alone():
    plans = [plan for _candidate, plan in open_space(AROUND, ALL)[0].programs if plan.optimizer == "compiled"]
    assert {plan.runtime for plan in plans} == {"inductor"}
    alone = [plan for plan in plans if settings_of(plan).only_updates]
    assert alone
    assert {plan.settings == {"only_updates": True} for plan in alone} == {True}, "no other setting is of it"
    assert not any(
        settings_of(plan).only_updates and plan.optimizer != "compiled"
        for _c, plan in open_space(AROUND, ALL)[0].programs
        if not plan.is_eager
    )


@pytest.mark.parametrize(("share", "is_open"), [(None, True), (0.3, True), (0.02, False)])
def test_the_optimizers_step_is_compiled_where_it_takes_enough_of_a_step(share, is_open):
    found = closed(dataclasses.replace(AROUND, optimizer_share=share))
    assert ("optimizer=compiled" not in found) == is_open
    assert is_open or "the optimizer takes 2% of a step" in found["optimizer=compiled"]


def test_a_failure_of_the_optimizers_step_says_nothing_of_the_model():
    failed = replace(failure(), cause="untraceable")
    both, model = replace(compiled(), optimizer="compiled"), compiled(options={"max_autotune": True})
    inductor = next(one for one in kinds() if one.name == "inductor")
    assert not inductor.fails_alike(failed, both, model)
    assert inductor.fails_alike(failed, model, both)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, ""),
        ({"in_script": True}, "the script computes them itself"),
        ({"training": TrainingEntry("SGD", without={"fp16": "it does not hold all"})}, "it does not hold all"),
    ],
)
def test_on_a_gpu_a_training_in_float16_is_open_where_its_loss_can_be_scaled(changed, words):
    found = closed(dataclasses.replace(AROUND, device_type="cuda", **changed))
    assert found.get("amp=fp16", "") == words or words in found.get("amp=fp16", "") != ""


def tried(budget_s, features):
    """What a training's search tries, on a CPU with these features, and why: compiling takes 15 s."""

    def answer(plan):
        ratio = (0.9 if plan.optimizer == "fused" else 1.0) * (0.8 if plan.autocast else 1.0) * (1 + plan.threads)
        return (ratio, 0.3) if plan.is_eager else (ratio * 0.95, 15.0)

    phases = (StepPhase("forward", 0.9, 90.0), StepPhase("optimizer", 0.1, 10.0))
    runner = FakeRunner(answer, FakeClock(), profiled=profile(step=StepProfile(phases)), profile_s=12.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_search, "environment", lambda: environment(cpu_features=features))
        document, runner = run(runner=runner, budget_s=budget_s, goal=Goal(deploy="jit"), **TRAINING)
    return runner, document


def first_compiled(runner):
    return next(plan for plan in runner.ran if not plan.is_eager)


@pytest.mark.parametrize("features", [("avx512_bf16",), ("amx_bf16", "avx512_bf16")])
def test_a_short_search_compiles_first_what_is_expected_to_win(features):
    """Whole-model compiling in bf16, fused: where there is the time for one that compiles, and not for two."""
    runner, document = tried(70.0, features)
    assert first_compiled(runner) == replace(compiled(), autocast="bfloat16", optimizer="fused")
    assert any("not tried before inductor amp=bf16 optimizer=fused" in line for line in said(document, "skipped"))
    assert any("with no time for it later" in line for line in said(document, "chosen"))


def test_with_time_for_both_plain_compiling_comes_first():
    runner, document = tried(600.0, ("avx512_bf16",))
    assert first_compiled(runner) == compiled()
    assert replace(compiled(), autocast="bfloat16", optimizer="fused") in runner.ran
    assert not any("with no time for it" in line for line in said(document, "chosen"))


def test_without_instructions_for_bf16_a_short_search_compiles_nothing_in_it():
    runner, _document = tried(70.0, ("avx2",))
    assert not any(plan.autocast for plan in runner.ran if not plan.is_eager)


def test_a_better_batch_is_told_with_what_it_changes():
    training = {**TRAINING, "training": TrainingEntry("AdamW", batch=(8, 64))}
    goal = Goal(deploy="jit", objective="throughput").for_training((8, 64))
    document, _runner = run(
        lambda plan: ({0: 1.0, 8: 0.6, 64: 0.3}[plan.batch], 0.2), goal=goal, budget_s=900, **training
    )
    assert document.winner.batch == 64
    assert document.winner_as_given.batch is None
    said = " ".join(as_text(document).split())
    assert "in batches of 64; at your batch" in said
    assert "changes what a step learns" in said
    assert "# use batches of 64 samples" in document.snippet
    assert not any(entry.batch and entry.plan.micro_batches > 1 for entry in document.trials)


BLOCKS = (RepeatedBlock("Layer", ("layers.0", "layers.1")),)
LIMITED = dataclasses.replace(AROUND, blocks=BLOCKS, limits_memory=True, micro_batches={"2": "", "4": ""})
SAVING = ("activations=checkpoint", "memory_budget=half", "micro_batches=2", "micro_batches=4")


def test_ways_to_save_memory_are_open_where_memory_is_limited():
    assert not set(SAVING) & set(closed(LIMITED))
    plans = [plan for _candidate, plan in open_space(LIMITED, ALL)[0].programs]
    assert {plan.recomputed for plan in plans} == {(), ("layers.0", "layers.1")}
    assert {plan.micro_batches for plan in plans} == {1, 2, 4}
    budgets = {settings_of(plan).memory_budget for plan in plans if plan.runtime == "inductor"}
    assert budgets == {1.0, 0.5}
    assert not any(plan.recomputed and settings_of(plan).memory_budget < 1 for plan in plans if not plan.is_eager)
    assert {plan.recomputed for plan in plans if plan.is_eager} == {(), ("layers.0", "layers.1")}


@pytest.mark.parametrize(
    ("changed", "subject", "words"),
    [
        ({"limits_memory": False}, "activations=checkpoint", "the goal does not limit memory"),
        ({"limits_memory": False}, "memory_budget=half", "the goal does not limit memory"),
        ({"blocks": ()}, "activations=checkpoint", "no repeated blocks"),
        ({"recompute_problem": "0.norm changes at every step"}, "activations=checkpoint", "0.norm changes"),
        ({"draws": True}, "memory_budget=half", "other random numbers"),
        ({"micro_batches": {"2": "", "4": "a batch of 6 has no 4 equal parts"}}, "micro_batches=4", "no 4 equal parts"),
        ({"micro_batches": {}}, "micro_batches=2", "was not checked"),
    ],
)
def test_a_way_that_saves_nothing_or_learns_otherwise_is_closed(changed, subject, words):
    assert words in closed(dataclasses.replace(LIMITED, **changed))[subject]


def test_parts_of_batches_are_open_without_a_limit():
    assert not {"micro_batches=2", "micro_batches=4"} & set(closed(dataclasses.replace(LIMITED, limits_memory=False)))


def test_what_is_called_saves_no_activations():
    space, left_out = open_space(dataclasses.replace(LIMITED, training=None), ALL)
    assert {(plan.recomputed, plan.micro_batches) for _candidate, plan in space.programs} == {((), 1)}
    assert not {subject.partition("=")[0] for subject, _ in left_out} & {
        "activations",
        "memory_budget",
        "micro_batches",
    }


class Remembering(FakeRunner):
    """Whose trials take as much memory as their plans keep, in MiB."""

    def measure(self, task, limits):
        outcome = super().measure(task, limits)
        return outcome if isinstance(outcome, Failure) else replace(outcome, peak_memory_bytes=taken(task.plan))


def taken(plan):
    share = (0.3 if plan.recomputed else 1.0) / plan.micro_batches
    if plan.runtime == "inductor":
        share *= 0.9 * (0.6 if settings_of(plan).memory_budget < 1 else 1.0)
    return int((200 + 800 * share) * 2**20)


def slowed(plan):
    """What saves memory costs time."""
    ratio = (0.6 if plan.runtime == "inductor" else 1.0) * (1.3 if plan.recomputed else 1.0)
    return ratio * {1: 1.0, 2: 1.1, 4: 1.4}[plan.micro_batches], 0.0 if plan.is_eager else 8.0


def limited_run(limit, **fields):
    profiled = profile(blocks=BLOCKS, micro_batches={"2": "", "4": ""}, **fields)
    runner = Remembering(slowed, FakeClock(), profiled=profiled)
    goal = Goal(calls=1_000_000, max_memory=limit) if limit else Goal(calls=1_000_000)
    return run(runner=runner, goal=goal.for_training(), **TRAINING)[0], runner


def test_a_limit_that_the_step_breaks_is_kept_by_the_fastest_way_that_does():
    document, runner = limited_run("500MiB")
    winner = next(entry for entry in document.trials if entry.number == document.winner.number)
    assert winner.peak_memory_bytes <= 500 * 2**20
    assert winner.plan.runtime == "inductor"
    best = min(slowed(plan)[0] for plan in runner.ran if taken(plan) <= 500 * 2**20)
    assert slowed(winner.plan)[0] == pytest.approx(best)
    baseline = next(entry for entry in document.trials if entry.origin == "baseline")
    assert verdict_words(baseline) == "baseline, beyond max_memory by 100%"
    assert any("eager activations=checkpoint: the unmodified model exceeds max_memory" in one for one in said(document))
    kept = [taken(plan) <= 500 * 2**20 for plan in runner.ran]
    assert sum(kept) > len(kept) / 2  # what surely breaks the limit is not tried on and on


def test_without_a_limit_little_is_spent_on_saving():
    document, runner = limited_run(None)
    assert not any(plan.recomputed for plan in runner.ran)
    assert document.winner.plan.micro_batches == 1


def test_a_limit_that_nothing_keeps_is_said_to_be_missed():
    document, _runner = limited_run("100MiB")
    assert "misses max_memory by 154%" in " ".join(as_text(document).split())


def test_a_goal_for_steps_compiles_in_every_process():
    assert Goal().for_training().deploy == "jit"
    assert Goal(horizon="8h").for_training().horizon_s == Goal(horizon="8h").horizon_s
    for goal in (Goal(metric=len), Goal(batch=[8], objective="throughput"), Goal(processes=2)):
        with pytest.raises(InvalidValue):
            goal.for_training()


def test_a_model_in_evaluation_mode_is_told_of():
    told = [notice.text for notice in of_workload(workload(**{**TRAINING, "in_training_mode": False}))]
    assert len(told) == 1
    assert "call model.train() first" in told[0]
    assert not list(of_workload(workload(**TRAINING)))


def answered(plan):
    """Compiling gains, and so does fused."""
    ratio = (1.0 if plan.is_eager else 0.5) * (0.7 if plan.optimizer == "fused" else 1.0)
    return ratio, 0.0 if plan.is_eager else 8.0


@pytest.mark.parametrize("wins", ["compiled", "eager"])
def test_everything_that_is_said_is_about_steps(wins):
    document, _ = run(answered if wins == "compiled" else lambda _plan: (1.0, 0.0), **TRAINING)
    assert document.workload.training == ADAMW
    assert (document.winner.plan == Plan()) == (wins == "eager")
    for text in (as_text(document), "\n".join(story(document)), as_text(at_calls(document, 3))):
        without_code = text.partition("The same in plain torch")[0]
        assert re.search(r"\b(call|calls|artifact)\b", without_code) is None
        assert " step" in without_code
    assert "steps per process" in as_page(document)
    assert document.artifact.start == ("compile" if wins == "compiled" else "none")
    if wins == "compiled":
        assert document.winner.config["optimizer"] == "fused"
        assert "It compiles at the first step, about 8" in " ".join(as_text(document).split())
        assert "def step(*batches):" in document.snippet
    assert any("does not train" in one for one in said(document, "narrowed"))


def test_every_snippet_of_a_step_is_python_and_names_this_library_nowhere():
    for around in (AROUND, LIMITED, Surroundings("cuda", 16, True, True, 3, training=ADAMW)):
        for _candidate, plan in open_space(around, ALL)[0].programs:
            code = snippet(plan, device_type=around.device_type, is_module=True, training=ADAMW)
            compile(code, "snippet", "exec")
            assert "autocompile" not in code
            assert "def step(*batches):" in code
            assert "def run" not in code


def test_a_snippet_says_what_the_loop_has():
    whole = snippet(compiled(), device_type="cpu", is_module=True, training=ADAMW)
    assert "value = value / len(batches)" in whole
    assert "clip_grad_norm_(model.parameters(), 1.0)" in whole
    plain = snippet(Plan(), device_type="cpu", is_module=True, training=TrainingEntry("SGD", own_loss=True))
    assert "len(batches)" not in plain
    assert "clip_grad" not in plain
    assert "output.loss" in plain


def test_what_was_tuned_for_training_is_not_loaded():
    from autocompile.artifact.options import check_model
    from autocompile.core.identity import Identity
    from autocompile.core.manifest import Manifest, Requirements
    from autocompile.core.serving import Serving

    manifest = Manifest(
        5, "inductor", compiled(), "cpu", Identity(), Serving("inductor", "compile"), (),
        Requirements("2.13.0", "x86_64", (), ""), training=ADAMW,
    )  # fmt: skip
    with pytest.raises(InvalidRecommendation, match="the recommendation is for training"):
        check_model(manifest, len)


@pytest.mark.parametrize("packs", [True, False])
def test_the_compilers_cache_lies_beside_what_is_judged_without_it(packs):
    refused = failure("unsupported", "pack", "there is no room for it")
    runner = FakeRunner(answered, FakeClock(), packs=packs_either if packs else lambda _task: refused)
    document, runner = run(runner=runner, **TRAINING)
    manifest = open_manifest(runner.directory)
    assert manifest.training == ADAMW
    assert manifest.signatures == document.workload.signatures
    assert document.artifact.start == manifest.serving.start == "compile"
    assert document.winner.startup_s == pytest.approx(8.0, rel=0.1)
    assert bool(manifest.files) == packs
    assert ("cache is packed" in " ".join("\n".join(story(document)).split())) == packs
    assert any("there is no room for it" in one for one in said(document, "skipped")) != packs


class Taught(FakeRunner):
    """Whose finals train beside eager: what is fused learns otherwise; the seconds for it are noted by plan."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.learning = []

    def measure(self, task, limits):
        reply = super().measure(task, limits)
        if not task.learning_s or not isinstance(reply, Measurement):
            return reply
        self.learning.append(task.plan)
        if task.plan.optimizer == "fused":
            return failure("wrong_result", "verify", "the loss deviates from eager's by 0.5, more than 0.001")
        return replace(reply, learned=Learned(32, 2.3145, 1.871, 1.8708, 1e-4, 1e-3))


def test_a_finalist_that_learns_otherwise_makes_room_for_the_next_and_the_others_are_told_of():
    document, runner = run(runner=Taught(answered, FakeClock()), **TRAINING)
    assert len(runner.learning) == len({plan.key for plan in runner.learning}), "each in its first final"
    wrong = [entry for entry in document.trials if entry.verdict == "wrong result"]
    assert {entry.config["optimizer"] for entry in wrong} == {"fused"}
    assert document.winner.plan.runtime == "inductor"
    assert document.winner.config["optimizer"] != "fused"
    assert document.winner.learned.steps == 32
    told = f"{document.winner.label}: trained 32 steps alongside eager: loss 2.314 -> 1.871, eager 1.871"
    refused = f"{wrong[0].label}: wrong result in phase verify: the loss deviates from eager's by 0.5"
    for text in (as_text(document), as_brief(document)):
        assert told in " ".join(text.split())
    assert refused in " ".join(as_text(document).split())
    assert learned_words(Learned(skipped="no time")) == "not trained alongside eager: no time"
    assert "with the same random numbers, the losses differ by 1.0e-04, and 1.0e-03" in "\n".join(story(document))


def test_what_is_called_is_not_trained():
    _document, runner = run(runner=Taught(answered, FakeClock()))
    assert runner.learning == []


def test_a_training_measured_again_is_trained_once_more():
    document, _ = run(answered, **TRAINING)
    assert document.winner.config["optimizer"] == "fused"
    runner = Taught(answered, FakeClock())
    wrong = again(document, None, runner=runner, about=TRAINING)
    assert (wrong.verdict, wrong.label) == ("wrong", document.winner.label)
    assert wrong.fault.startswith("wrong result: the loss deviates from eager's by 0.5")
    assert len(runner.learning) == 1
    plain = replace(document, winner=next(entry for entry in document.trials if entry.origin == "plain"))
    good = again(plain, None, runner=Taught(answered, FakeClock()), about=TRAINING)
    assert good.verdict == "good"
    assert "  trained 32 steps alongside eager: loss 2.314 -> 1.871, eager 1.871" in list(recheck_lines(good))
    assert not any("call" in line for line in recheck_lines(good))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"optimizer": "SGD"}, ": the optimizer is SGD, was AdamW"),
        ({"accumulate": 1}, ": accumulate is 1, was 2"),
        ({"clip_norm": None}, ": clip_norm is None, was 1.0"),
        ({}, ": its loss or the settings of its optimizer differ"),
        (None, ": it is called now, and was not"),
    ],
)
def test_a_recommendation_for_another_training_is_refused_with_what_differs(changes, words):
    document, runner = run(answered, **TRAINING)
    now = None if changes is None else replace(ADAMW, **changes)
    other = workload(**{**TRAINING, "fingerprint": "another", "training": now})
    with pytest.raises(InvalidRecommendation, match=words):
        check_workload(runner.directory, document, other)
