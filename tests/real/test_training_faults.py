"""Wrong training steps are detected, and correct ones are accepted, in float32 and in bfloat16."""

import re
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from learners import LEARNERS, learner
from torch import nn

from autocompile.core.job import Acceptance
from autocompile.core.tolerance import published_tolerance
from autocompile.trial.check.compare import compare
from autocompile.trial.check.reference import make_reference
from autocompile.workload.training import sequel
from autocompile.workload.training.recipe import Group
from autocompile.workload.training.step import TrainingStep

pytestmark = pytest.mark.usefixtures("one_thread")

SEED = 7
OPTIMIZERS = {
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.01),
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4),
}


class NotDivided(TrainingStep):
    """The loss that it tells is right."""

    def learn(self, batch, count):
        return super().learn(batch, 1) / count


class DividedTwice(TrainingStep):
    def learn(self, batch, count):
        return super().learn(batch, count * count) * count


class OneNeverUpdated(TrainingStep):
    def update(self):
        parameter = next(p for n, p in self.parameters.items() if n.endswith("bias"))
        before = parameter.detach().clone()
        super().update()
        with torch.no_grad():
            parameter.copy_(before)


class NothingToUpdate(TrainingStep):
    """One parameter gets no gradient."""

    def update(self):
        next(iter(self.parameters.values())).grad = None
        super().update()


class StatisticsKept(TrainingStep):
    def work(self, sample):
        for module in self.module.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = 0.0
        return super().work(sample)


class WithoutDropout(TrainingStep):
    def work(self, sample):
        for module in self.module.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        return super().work(sample)


class SameMask(TrainingStep):
    def work(self, sample):
        torch.manual_seed(SEED)
        return super().work(sample)


class NotCleared(TrainingStep):
    def clear(self):
        pass


class NotUnscaled(TrainingStep):
    def learn(self, batch, count):
        loss = self.loss(batch) / count
        (loss * 1024).backward()
        return loss.detach()


class WithoutDecay(TrainingStep):
    def __init__(self, module, training):
        recipe = TrainingStep(module, training).recipe
        groups = tuple(Group(group.names, group.settings | {"weight_decay": 0.0}) for group in recipe.groups)
        super().__init__(module, training, recipe=replace(recipe, groups=groups, make=None))


class Untied(TrainingStep):
    def __init__(self, module, training):
        super().__init__(module, training)
        module.head.weight = nn.Parameter(module.head.weight.detach().clone())


class HalfTied(TrainingStep):
    """The head has the values of the embedding, but its gradient does not reach it."""

    def __init__(self, module, training):
        super().__init__(module, training)
        module.head = Detached(module.head.weight)


class Detached(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, x):
        return x @ self.weight.detach().T


class Skipping(TrainingStep):
    done = 0

    def update(self):
        self.done += 1
        if self.done % 3 != 2:
            super().update()


class Stale(TrainingStep):
    """Computes with the parameters that it began with."""

    first = None

    def loss(self, batch):
        self.first = self.first or {name: p.detach().clone() for name, p in self.parameters.items()}
        stale = {name: p + (self.first[name] - p).detach() for name, p in self.parameters.items()}
        return self.training.loss(lambda *args: torch.func.functional_call(self.module, stale, args), batch)


class NotClipped(TrainingStep):
    def update(self):
        self.norm = nn.utils.get_total_norm([p.grad for p in self.module.parameters() if p.grad is not None])
        self.optimizer.step()


FAULTS = [
    (NotDivided, "mlp", "gradient"),
    (DividedTwice, "transformer", "gradient"),
    (OneNeverUpdated, "transformer", r"update of .*bias is off"),
    (OneNeverUpdated, "cnn", r"update of .*bias is off"),
    (NothingToUpdate, "lstm", r"there is no .*embedding\.weight"),
    (StatisticsKept, "cnn", r"change of buffer 1\.running_mean is off by 1 "),
    (WithoutDropout, "transformer", "is off by"),
    (WithoutDropout, "cnn", "is off by"),
    (WithoutDropout, "mlp", "is off by"),
    (SameMask, "transformer", "gradient"),
    (SameMask, "cnn", "gradient"),
    (SameMask, "lstm", "gradient"),
    (SameMask, "mlp", "gradient"),
    (NotCleared, "transformer", "gradient"),
    (NotCleared, "lstm", "gradient"),
    (NotUnscaled, "cnn", "gradient"),
    (NotUnscaled, "mlp", "gradient"),
    (WithoutDecay, "transformer", "update of .* is off"),
    (WithoutDecay, "cnn", "update of .* is off"),
    (Untied, "transformer", r"there is an added .*head\.weight"),
    (HalfTied, "transformer", r"gradient of embedding\.weight"),
    (Skipping, "mlp", "update|optimizer's"),
    (Skipping, "lstm", "update|optimizer's"),
    (Stale, "mlp", "gradient"),
    (NotClipped, "mlp", "gradient of 0.weight"),
]


def judged(step, reference, precision=""):
    step.autocast = precision
    with without_onednn(any(isinstance(module, nn.LSTM) for module in step.module.modules())):
        return compare(step, reference, Acceptance(published_tolerance(precision)))


@contextmanager
def without_onednn(off):
    """It has no bfloat16 LSTM for training on every processor."""
    torch._C._set_mkldnn_enabled(not off)
    yield
    torch._C._set_mkldnn_enabled(True)


def referred(name, optimizer, *, clip_norm=None, accumulate=2, precision="float64"):
    """A baseline's reference, and how to make steps of the same kind."""

    def made(of=TrainingStep):
        return learner(name, OPTIMIZERS[optimizer], accumulate=accumulate, clip_norm=clip_norm, of=of)

    step, sample = made()
    reference = make_reference(step, (sample,), variants=1, seed=SEED)
    assert reference.precision == precision
    assert bool(reference.notes) == (precision != "float64")
    return reference, made


@pytest.mark.parametrize("precision", ["", "bfloat16"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(("fault", "name", "words"), FAULTS, ids=[f"{f.__name__}-{n}" for f, n, _words in FAULTS])
def test_a_planted_fault_is_found(fault, name, words, optimizer, precision):
    reference, made = referred(name, optimizer, clip_norm=0.1 if fault is NotClipped else None)
    found = judged(made(fault)[0], reference, precision)
    assert found.fault, found.accuracy
    assert re.search(words, found.fault), found.fault


def test_clipping_hides_no_wrong_scale():
    reference, made = referred("mlp", "AdamW", clip_norm=0.1)
    assert "norm of the gradient is off" in judged(made(NotDivided)[0], reference).fault


@pytest.mark.parametrize("clip_norm", [None, 0.5])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", LEARNERS)
def test_no_right_step_is_accused(name, optimizer, clip_norm):
    reference, made = referred(name, optimizer, clip_norm=clip_norm)
    for variant in ("as given", "foreach", "fused"):
        step = made()[0]
        if variant != "as given":
            step = TrainingStep(step.module, step.training, recipe=getattr(step.recipe, variant)())
        for precision in ("", "bfloat16"):
            found = judged(step, reference, precision)
            assert found.fault == "", (variant, precision)


def test_an_optimizer_may_write_into_the_gradients(monkeypatch):
    """SGD with Nesterov's momentum does so in its implementation by `foreach`, and in no other."""
    made = {"momentum": 0.9, "nesterov": True}
    monkeypatch.setitem(OPTIMIZERS, "Nesterov", lambda parameters: torch.optim.SGD(parameters, lr=0.1, **made))
    reference, steps = referred("mlp", "Nesterov")
    for variant in ("foreach", "fused"):
        step = steps()[0]
        step = TrainingStep(step.module, step.training, recipe=getattr(step.recipe, variant)())
        assert judged(step, reference).fault == "", variant
    assert "gradient" in judged(steps(DividedTwice)[0], reference).fault


@pytest.fixture
def without_float64(monkeypatch):
    """As for dropout on a GPU, where a step in float64 draws other random numbers."""

    def fails(_self):
        raise RuntimeError("not in float64")

    monkeypatch.setattr(TrainingStep, "in_float64", fails)


@pytest.mark.usefixtures("without_float64")
@pytest.mark.parametrize("precision", ["", "bfloat16", "float16"])
@pytest.mark.parametrize("name", ["transformer", "cnn", "mlp"])
def test_no_right_step_is_accused_without_float64(name, precision):
    reference, made = referred(name, "AdamW", precision="the baseline's own")
    found = judged(made()[0], reference, precision)
    assert found.fault == "", found


@pytest.mark.usefixtures("without_float64")
@pytest.mark.parametrize(("fault", "name", "words"), FAULTS, ids=[f"{f.__name__}-{n}" for f, n, _words in FAULTS])
def test_a_planted_fault_is_found_without_float64(fault, name, words):
    clip_norm = 0.1 if fault is NotClipped else None
    reference, made = referred(name, "AdamW", clip_norm=clip_norm, precision="the baseline's own")
    found = judged(made(fault)[0], reference)
    assert re.search(words, found.fault), found


class Short(TrainingStep):
    """Memory is short for a further observation."""

    def observe_shaken(self, sample, seed):
        raise torch.OutOfMemoryError("no memory")


class Elsewhere(TrainingStep):
    """With other roundings, one gradient has another shape, another is infinite, and a counter counts otherwise."""

    def observe_shaken(self, sample, seed):
        seen = super().observe_shaken(sample, seed)
        first, second, *_ = (name for name in seen.leaves if name.startswith("gradient of"))
        seen.leaves[first] = seen.leaves[first][:1]
        seen.leaves[second] = seen.leaves[second] / 0
        seen.leaves["buffer 1.num_batches_tracked afterwards"] += 1
        return seen


@pytest.mark.usefixtures("without_float64")
@pytest.mark.parametrize("of", [Short, Elsewhere])
def test_what_cannot_be_shaken_is_compared_with_the_baseline_as_it_was(of):
    step, sample = learner("cnn", OPTIMIZERS["SGD"], of=of)
    reference = make_reference(step, (sample,), variants=0, seed=SEED)
    assert judged(learner("cnn", OPTIMIZERS["SGD"])[0], reference).fault == ""


@pytest.mark.parametrize("rounds", [False, True])
def test_settings_may_be_held_in_float32_only_where_kernels_do_so(rounds, monkeypatch):
    """As fused kernels on a GPU do: 1 minus a beta of 0.999 is then off by 1.3e-5."""
    monkeypatch.setattr(sequel, "ROUNDING_SETTINGS", frozenset({"cpu"} if rounds else {"cuda"}))
    reference, made = referred("mlp", "AdamW")
    step = made()[0]
    rounded = [replace(group, settings=in_float32(group.settings)) for group in step.recipe.groups]
    step = TrainingStep(step.module, step.training, recipe=replace(step.recipe, groups=tuple(rounded)))
    assert step.optimizer.param_groups[0]["betas"] != (0.9, 0.999)
    assert ("exp_avg_sq" in judged(step, reference).fault) != rounds


def in_float32(settings):
    return settings | {"betas": tuple(torch.tensor(settings["betas"], dtype=torch.float32).tolist())}


@pytest.mark.parametrize("shift", [-1e-6, 1e-6])
@pytest.mark.parametrize("sample_and_unit", [(3, 5), (12, 40), (28, 8), (0, 0)])
def test_a_unit_at_its_kink_may_go_either_way(sample_and_unit, shift):
    """A ReLU's input that is zero but for roundings: two right steps differ in whether a gradient passes."""
    _row, unit = sample_and_unit

    def at_the_kink(by):
        step, sample = learner("mlp", clip_norm=0.1)
        module = step.module
        module[2].p = 0.0
        with torch.no_grad():
            module[3].bias[unit] -= module[:4](sample.args[0][0])[sample_and_unit] - by
        return step, sample

    step, sample = at_the_kink(0.0)
    reference = make_reference(step, (sample,), variants=0, seed=SEED)
    assert reference.precision == "float64"
    other = at_the_kink(shift)[0]
    reached = [
        one.observe(sample, SEED).leaves["gradient of 3.weight"][0, unit] for one in (other, at_the_kink(-shift)[0])
    ]
    assert not torch.allclose(*reached, rtol=1e-3), "they do differ"
    assert judged(other, reference).fault == ""
