"""A compiled step with active dropout: exact if it draws eager's numbers, else equal by distribution."""

import pytest
import torch
from learners import learner
from torch import nn

from autocompile.core.job import Acceptance
from autocompile.core.tolerance import published_tolerance
from autocompile.runtime.compiler_options import options_of
from autocompile.runtime.inductor.settings import compiled
from autocompile.trial.check.compare import compare
from autocompile.trial.check.randomness import drawing_as_eager, lowering_fault
from autocompile.trial.check.reference import make_reference
from autocompile.workload.training.step import TrainingStep

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),  # the compiler's own
    pytest.mark.usefixtures("one_thread"),
]
EXACT = published_tolerance("")


def carried_out(step, plan):
    """The step, its model compiled by the plan's options."""
    model = torch.compile(step.module, options=options_of(plan) or None)
    return TrainingStep(step.module, step.training, model=model)


def test_a_compiled_step_with_dropout_is_verified():
    baseline, sample = learner("mlp")
    reference = make_reference(baseline, (sample,), variants=1, seed=3)
    assert reference.precision == "float64"
    plan = compiled()
    alike = carried_out(learner("mlp")[0], drawing_as_eager(plan))
    assert compare(alike, reference, Acceptance(EXACT)).fault == ""
    real = carried_out(learner("mlp")[0], plan)
    assert "is off" in compare(real, reference, Acceptance(EXACT)).fault, "it draws other numbers"
    assert lowering_fault(real, baseline, sample, 3, EXACT) == ""


def test_no_compiled_step_is_accused_for_a_gradient_that_is_nothing_but_roundings():
    baseline, sample = learner("cnn")
    reference = make_reference(baseline, (sample,), variants=1, seed=3)
    assert reference.cases[0].expected.leaves["gradient of 3.bias"].abs().max() < 1e-12
    step = carried_out(learner("cnn")[0], drawing_as_eager(compiled()))
    assert compare(step, reference, Acceptance(EXACT)).fault == ""


def dropping(rate, of=TrainingStep):
    step, sample = learner("mlp", of=of)
    step.module[2].p = rate
    return step, sample


class SameMask(TrainingStep):
    def work(self, sample):
        torch.manual_seed(0)
        return super().work(sample)


class EveryOther(TrainingStep):
    """Every mask is drawn for two steps."""

    done = 0

    def work(self, sample):
        torch.manual_seed(self.done // 2)
        self.done += 1
        return super().work(sample)


def test_dropout_at_the_same_rate_passes_whatever_numbers_it_draws():
    baseline, sample = dropping(0.1)
    for seed in range(10):
        torch.manual_seed(100 + seed)
        assert lowering_fault(dropping(0.1)[0], Shifted.of(baseline, seed), sample, seed, EXACT) == ""


class Shifted(TrainingStep):
    """Draws other numbers than anybody."""

    @classmethod
    def of(cls, step, shift):
        other = cls(step.module, step.training)
        other.shift = shift
        return other

    def work(self, sample):
        torch.rand(self.shift + 1)
        return super().work(sample)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (dropping(0.0), "the same every time"),
        (dropping(0.1, SameMask), "the same every time"),
        (dropping(0.1, EveryOther), "the same random numbers again"),
        (dropping(0.5), "another distribution"),
        (dropping(0.01), "another distribution"),
    ],
    ids=["off", "same mask", "every mask twice", "more", "less"],
)
def test_dropout_that_is_another_is_found(wrong, words):
    baseline, sample = dropping(0.1)
    before = torch.get_rng_state()
    assert words in lowering_fault(wrong[0], baseline, sample, 0, EXACT)
    assert torch.equal(torch.get_rng_state(), before)


def test_without_random_numbers_there_is_nothing_to_find():
    baseline, sample = dropping(0.0)
    assert not any(isinstance(module, nn.Dropout) and module.p for module in baseline.module.modules())
    assert lowering_fault(baseline.twin(), baseline, sample, 0, EXACT) == ""
