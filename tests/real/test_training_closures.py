"""Optimizers that call a closure for the loss: the closure is tuned, and their own step does not change."""

import copy

import pytest
import torch
from learners import LEARNERS, fitted, learner
from torch import nn

import autocompile
from autocompile.artifact.integrity import write_manifest
from autocompile.artifact.mismatch import requirements
from autocompile.core.job import Acceptance
from autocompile.core.manifest import MANIFEST_VERSION, Manifest
from autocompile.core.plan import Plan
from autocompile.core.tolerance import published_tolerance
from autocompile.runtime.building import as_trained
from autocompile.runtime.catalogue import kind_of
from autocompile.runtime.snippet import snippet
from autocompile.trial.check.alongside import Lesson, learn_alongside, yardstick_of
from autocompile.trial.check.compare import compare
from autocompile.trial.check.reference import make_reference
from autocompile.workload.identity.facts import identity_of
from autocompile.workload.samples import Sample, signatures_of
from autocompile.workload.spool import spool, unspool_step
from autocompile.workload.training.curve import curve_of
from autocompile.workload.training.step import TrainingStep
from autocompile.workload.training.training import Training

pytestmark = pytest.mark.usefixtures("one_thread")
SEARCHES = {"fixed steps": None, "a line search": "strong_wolfe"}
TUNED = Training(loss=fitted, optimizer=lambda parameters: torch.optim.LBFGS(parameters, max_iter=5))


def lbfgs(parameters, search=None):
    return torch.optim.LBFGS(parameters, lr=0.5, max_iter=5, line_search_fn=search)


def steady():
    """A model that draws nothing, and two batches."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 1))
    return model, [LEARNERS["mlp"].batch() for _ in range(2)]


def by_hand(model, optimizer, batches, clip_norm=None):
    """A plain loop: the loss of each call of the closure, by step."""
    steps = []
    for batch in batches:
        losses = []

        def closure(batch=batch, losses=losses):
            optimizer.zero_grad()
            loss = fitted(model, batch)
            loss.backward()
            if clip_norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
            losses.append(loss.item())
            return loss

        optimizer.step(closure)
        steps.append(losses)
    return steps


def held(module):
    return [(name, one.detach().clone()) for name, one in (*module.named_parameters(), *module.named_buffers())]


def test_a_call_of_the_closure_makes_gradients_and_no_update(tmp_path):
    model, batches = steady()
    workload = spool(model, batches, tmp_path, training=TUNED)
    assert (workload.kind, workload.training.optimizer, workload.training.by_closure) == ("closure", "LBFGS", True)
    assert "is not part of a closure call" in workload.training.without["fused"]
    step, samples = unspool_step(workload)
    before = held(step.module)
    loss = step.work(samples[0])
    assert all(torch.equal(one, other) for (_, one), (_, other) in zip(held(step.module), before, strict=True))
    expected = fitted(model, batches[0])
    expected.backward()
    assert loss.item() == expected.item()
    for (name, one), other in zip(step.module.named_parameters(), model.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad), name


class WrongGradient(TrainingStep):
    def learn(self, batch, count):
        loss = super().learn(batch, count)
        self.module[3].weight.grad.mul_(1.5)
        return loss


class Updates(TrainingStep):
    def update(self):
        super().update()
        with torch.no_grad():
            self.module[3].bias.add_(1e-3)


@pytest.mark.parametrize(("kind", "fault"), [(WrongGradient, "gradient of 3.weight"), (Updates, "update of 3.bias")])
def test_what_a_call_does_otherwise_is_found(kind, fault):
    step, sample = learner("mlp", lbfgs)
    reference = make_reference(step, (sample,), variants=0, seed=0)
    assert reference.precision == "float64"
    acceptance = Acceptance(published_tolerance(""))
    assert compare(as_trained(step, Plan()).twin(), reference, acceptance).fault == ""
    wrong, _sample = learner("mlp", lbfgs, of=kind)
    assert fault in compare(wrong, reference, acceptance).fault


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_a_curve_is_over_the_calls_of_the_optimizers_own_steps(search):
    model, batches = steady()
    training = Training(loss=fitted, optimizer=lambda parameters: lbfgs(parameters, search))
    step = TrainingStep(copy.deepcopy(model), training)
    before = held(step.module)
    curve = curve_of(step, [Sample((batch,), {}) for batch in batches], 0, steps=8)
    by_step = by_hand(model, lbfgs(model.parameters(), search), batches * 4)
    assert list(curve.losses) == [loss for losses in by_step for loss in losses][:8]
    assert all(torch.equal(one, other) for (_, one), (_, other) in zip(held(step.module), before, strict=True))
    assert not step.optimizer.state


class LosesItsWay(TrainingStep):
    """From its sixth call on a part of the gradient is not cleared."""

    calls = 0

    def clear(self):
        self.calls += 1
        kept = self.module[2].weight.grad
        super().clear()
        if self.calls > 5:
            self.module[2].weight.grad = kept


def test_what_goes_wrong_in_later_calls_is_found_alongside():
    model, batches = steady()
    training = Training(loss=fitted, optimizer=lbfgs)
    lesson = Lesson(tuple(Sample((batch,), {}) for batch in batches), 0, 1e6)
    baseline = TrainingStep(copy.deepcopy(model), training)
    yardstick = yardstick_of(baseline, baseline, lesson, random=False)
    right = learn_alongside(baseline.twin(), None, yardstick, lesson)
    assert (right.fault, right.learned.by_closure, right.learned.steps) == ("", True, 32)
    wrong = learn_alongside(LosesItsWay(copy.deepcopy(model), training), None, yardstick, lesson)
    assert "of 32 closure calls of training" in wrong.fault


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_a_prepared_step_is_a_step_of_the_optimizers(tmp_path, search):
    model, batches = steady()
    training = Training(loss=fitted, optimizer=lambda parameters: lbfgs(parameters, search), clip_norm=10.0)
    plan = Plan(micro_batches=2)
    workload = spool(model, batches, tmp_path / "workload", training=training)
    manifest = Manifest(
        manifest_version=MANIFEST_VERSION,
        label="recommended",
        plan=plan,
        device_type="cpu",
        identity=identity_of(model),
        serving=kind_of(plan).unpacked,
        absences=(),
        requirements=requirements(plan.runtime, with_python=False, device_type="cpu"),
        training=workload.training,
        signatures=signatures_of(training.samples_of(batches)),
    )
    (tmp_path / "rec").mkdir()
    write_manifest(tmp_path / "rec", manifest)
    own, same = copy.deepcopy(model), copy.deepcopy(model)
    expected = by_hand(model, lbfgs(model.parameters(), search), batches[:1] * 4, clip_norm=10.0)
    step = autocompile.prepare(tmp_path / "rec", own, lbfgs(own.parameters(), search), loss=fitted)
    losses = [step(batch).item() for batch in batches[:1] * 4]
    assert losses == pytest.approx([one[0] for one in expected], rel=1e-3)
    assert losses[-1] < losses[0]
    assert step.status.steps == {"eager": 4}
    names = {"torch": torch, "model": same, "optimizer": lbfgs(same.parameters(), search), "loss": fitted}
    exec(snippet(plan, device_type="cpu", is_module=True, training=workload.training), names)
    assert [names["step"](batch).item() for batch in batches[:1] * 4] == pytest.approx(losses, rel=1e-4)
