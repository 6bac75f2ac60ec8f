"""Several dozen steps next to eager: drift is found, and correct steps are accepted, in both precisions."""

import math
from contextlib import contextmanager

import pytest
import torch
from learners import LEARNERS, learner
from msgspec.structs import replace

from autocompile.core.job import Acceptance
from autocompile.core.outcome import Failure, Measurement
from autocompile.core.plan import Plan
from autocompile.core.tolerance import published_tolerance
from autocompile.runtime import building
from autocompile.runtime.building import as_trained
from autocompile.runtime.inductor.settings import compiled
from autocompile.trial.check.alongside import STEPS, Lesson, drawn_fault, learn_alongside, paired_fault, yardstick_of
from autocompile.trial.check.compare import compare
from autocompile.trial.check.randomness import drawing_as_eager
from autocompile.trial.check.reference import make_reference
from autocompile.trial.measure import measure
from autocompile.trial.phases import Phases
from autocompile.workload.samples import Sample
from autocompile.workload.training.step import TrainingStep
from autocompile.workload.training.training import Training

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),  # the compiler's own
    pytest.mark.usefixtures("one_thread"),
]

SEED, AMPLE_S = 7, 1e6
OPTIMIZERS = {
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.01),
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4),
}
# Cases whose drift over 32 steps exceeds the error of bfloat16. The scale of weights before batch normalization does
# not matter.
SEEN_IN_BFLOAT16 = {("AdamW", "transformer"), ("AdamW", "lstm"), ("AdamW", "mlp")}


class Counting(TrainingStep):
    """Right in its first three steps, which is as many as single steps are checked."""

    done = 0

    def update(self):
        self.done += 1
        if not self.skips():
            super().update()

    def skips(self):
        return False


class SkipsEveryFifth(Counting):
    def skips(self):
        return self.done % 5 == 0


class ForgetsMomentum(Counting):
    def skips(self):
        if self.done % 8 == 0:
            for held in self.optimizer.state.values():
                for key in {"exp_avg", "momentum_buffer"} & held.keys():
                    held[key].zero_()
        return False


class LosesDecay(Counting):
    def skips(self):
        if self.done > 3:
            for group in self.optimizer.param_groups:
                group["weight_decay"] = 0.0
        return False


class KeepsGradients(Counting):
    def clear(self):
        if self.done % 6 != 5:
            super().clear()


class SameMask(Counting):
    """From the fourth step on."""

    def work(self, sample):
        if self.done > 3:
            torch.manual_seed(SEED)
        return super().work(sample)


@contextmanager
def without_onednn(off):
    """It has no bfloat16 LSTM for training on every processor."""
    torch._C._set_mkldnn_enabled(not off)
    yield
    torch._C._set_mkldnn_enabled(True)


class Bench:
    """A learner's batches, and how its eager learns; made once for many candidates."""

    def __init__(self, name, optimizer, precision, *, random=False):
        self.name, self.optimizer, self.precision = name, OPTIMIZERS[optimizer], precision
        torch.manual_seed(SEED)
        samples = tuple(Sample((LEARNERS[name].batch(),), {}) for _ in range(4))
        self.lesson = Lesson(samples, SEED, AMPLE_S)
        self.baseline = learner(name, self.optimizer)[0]
        near = as_trained(self.baseline, Plan(autocast=precision)) if precision else self.baseline
        self.yardstick = yardstick_of(self.baseline, near, self.lesson, random=random)
        assert len(self.yardstick.given) == STEPS

    def step(self, of=TrainingStep):
        return learner(self.name, self.optimizer, of=of, plan=Plan(autocast=self.precision))[0]

    def judged(self, step):
        return learn_alongside(step, None, self.yardstick, self.lesson)

    def drawn(self, step):
        """As of a step that draws other random numbers than eager."""
        return [self.lesson.learn(step, STEPS, turn=100 + turn) for turn in range(4)]


@pytest.mark.parametrize("precision", ["", "bfloat16"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", LEARNERS)
def test_a_drift_is_found_and_nothing_else(name, optimizer, precision):
    with without_onednn(name == "lstm"):
        bench = Bench(name, optimizer, precision)
        for variant in ("", "fused"):
            found = bench.judged(as_trained(bench.baseline, Plan(optimizer=variant, autocast=precision)))
            assert found.fault == "", variant
            assert found.learned.steps == STEPS
            assert found.learned.off <= found.learned.limit
            assert found.learned.last < found.learned.first
        surer = bench.yardstick.surer(bench.lesson)
        for wrong in (SkipsEveryFifth, ForgetsMomentum, KeepsGradients, SameMask, LosesDecay):
            if wrong is LosesDecay and precision and (optimizer, name) not in SEEN_IN_BFLOAT16:
                continue
            found = paired_fault(bench.lesson.learn(bench.step(wrong), STEPS), surer)
            assert "deviates from eager's by" in found, wrong


@pytest.mark.parametrize("wrong", [SkipsEveryFifth, ForgetsMomentum, LosesDecay, KeepsGradients, SameMask])
def test_single_steps_do_not_show_it(wrong):
    step, sample = learner("mlp")
    reference = make_reference(step, (sample,), variants=0, seed=SEED)
    assert compare(learner("mlp", of=wrong)[0], reference, Acceptance(published_tolerance(""))).fault == ""


@pytest.mark.parametrize("precision", ["", "bfloat16"])
def test_a_compiled_step_with_dropout_is_right(precision):
    bench = Bench("mlp", "SGD", precision, random=True)
    plan = replace(compiled(), autocast=precision)
    candidate, alike = (as_trained(bench.baseline, one) for one in (plan, drawing_as_eager(plan)))
    found = learn_alongside(candidate, alike, bench.yardstick, bench.lesson)
    assert found.fault == ""
    assert (found.learned.steps, found.learned.seeds) == (STEPS, 4)
    assert "deviates from eager's" in bench.judged(candidate).fault, "it draws other numbers"


@pytest.mark.parametrize(
    ("wrong", "name", "optimizer"),
    [
        (ForgetsMomentum, "mlp", "AdamW"),
        (ForgetsMomentum, "cnn", "SGD"),
        (SkipsEveryFifth, "mlp", "SGD"),
        (SameMask, "cnn", "AdamW"),
        (SameMask, "cnn", "SGD"),
    ],
)
def test_what_draws_other_numbers_is_found_by_its_distribution(wrong, name, optimizer):
    bench = Bench(name, optimizer, "", random=True)
    assert drawn_fault(bench.drawn(bench.step()), bench.yardstick, 4) == ""
    assert drawn_fault(bench.drawn(bench.step(wrong)), bench.yardstick, 4)


class Rounded(TrainingStep):
    """Right, but for roundings of its own."""

    def work(self, sample):
        with torch.no_grad():
            for parameter in self.parameters.values():
                parameter.mul_(1 + 2**-23 * torch.rand(parameter.shape, generator=self.noise))
        return super().work(sample)


def test_a_chaotic_training_accuses_nobody():
    """In which a rounding grows to a difference that anybody sees."""
    hot = Training(
        loss=LEARNERS["transformer"].loss, optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=0.2)
    )
    baseline = TrainingStep(learner("transformer")[0].module, hot)
    lesson = Bench("transformer", "AdamW", "").lesson
    yardstick = yardstick_of(baseline, baseline, lesson, random=False)
    off = []
    for seed in range(4):
        step = as_trained(baseline, Plan())
        step.__class__, step.noise = Rounded, torch.Generator().manual_seed(seed)
        found = learn_alongside(step, None, yardstick, lesson)
        assert found.fault == ""
        off.append(found.learned.off)
    assert max(off) > 1e-4


def test_what_cannot_be_compared_is_told():
    bench = Bench("mlp", "SGD", "")
    short = yardstick_of(bench.baseline, bench.baseline, Lesson(bench.lesson.samples, SEED, 0.0), random=False)
    assert "there was time for 0 steps" in short.skipped
    diverging = Training(loss=LEARNERS["mlp"].loss, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e9))
    baseline = TrainingStep(learner("mlp")[0].module, diverging)
    lost = yardstick_of(baseline, baseline, bench.lesson, random=False)
    assert "eager's own loss is" in lost.skipped
    assert learn_alongside(baseline, None, lost, bench.lesson).learned.skipped == lost.skipped


def test_nothing_is_left_of_it():
    bench = Bench("mlp", "AdamW", "")
    before = [tensor.clone() for tensor in bench.baseline.module.state_dict().values()]
    state, random = len(bench.baseline.optimizer.state), torch.get_rng_state()
    bench.lesson.learn(bench.baseline, 3, shaken=1)
    assert all(map(torch.equal, before, bench.baseline.module.state_dict().values()))
    assert len(bench.baseline.optimizer.state) == state
    assert torch.equal(torch.get_rng_state(), random)


class NotFinite(Counting):
    def work(self, sample):
        return super().work(sample) * (math.nan if self.done > 40 else 1.0)


class StopsAfterFive(TrainingStep):
    """By the optimizer's own count, which goes back with its state after whatever was only looked at."""

    def update(self):
        if not any(held["step"] >= 5 for held in self.optimizer.state.values()):
            super().update()


@pytest.mark.parametrize("wrong", [None, StopsAfterFive])
def test_a_final_trains_beside_eager_before_it_is_timed(laboratory, monkeypatch, wrong):
    kind = LEARNERS["mlp"]
    torch.manual_seed(0)
    model = kind.model().train()
    training = Training(loss=kind.loss, optimizer=OPTIMIZERS["AdamW"])
    laboratory.prepare(model, [kind.batch(), kind.batch()], training=training)
    right = building.as_planned

    def as_planned(step, plan, compiled, *, isolate):
        built = right(step, plan, compiled, isolate=isolate)
        if plan.optimizer and wrong:  # what it is compared with stays right
            built.__class__ = wrong
        return built

    monkeypatch.setattr(building, "as_planned", as_planned)
    phases = Phases()
    outcome = measure(replace(laboratory.task(Plan(optimizer="fused")), learning_s=AMPLE_S), phases)
    assert isinstance(outcome, Failure if wrong else Measurement), outcome
    if isinstance(outcome, Failure):
        assert (outcome.stage, outcome.kind) == ("verify", "wrong_result")
        assert outcome.message.startswith("the loss deviates from eager's by")
        assert "timing" not in phases.seconds
    else:
        assert outcome.learned.steps == STEPS


def test_the_baseline_and_what_is_only_screened_are_not_trained(laboratory):
    kind = LEARNERS["mlp"]
    training = Training(loss=kind.loss, optimizer=OPTIMIZERS["AdamW"])
    laboratory.prepare(kind.model().train(), [kind.batch()], training=training)
    for task in (replace(laboratory.task(Plan()), learning_s=AMPLE_S), laboratory.task(Plan(optimizer="fused"))):
        assert measure(task, Phases()).learned is None


def test_a_curve_that_is_not_finite_is_none():
    bench = Bench("mlp", "AdamW", "")
    step = bench.step(NotFinite)
    step.done = 20
    assert "deviates from eager's by inf" in bench.judged(step).fault
