"""Trials of training steps: what they measure, and what they refuse."""

import pytest
import torch
from learners import LEARNERS, adamw, classified, fitted
from msgspec.structs import replace

from autocompile.core.job import Limits
from autocompile.core.outcome import Failure, Measurement
from autocompile.core.plan import Plan
from autocompile.runtime import building
from autocompile.runtime.inductor.settings import compiled
from autocompile.trial.measure import measure
from autocompile.trial.phases import Phases
from autocompile.workload.training.step import TrainingStep
from autocompile.workload.training.training import Training

pytestmark = pytest.mark.usefixtures("one_thread")

ELSEWHERE = torch.nn.Linear(10, 1)


def given(name, *, optimizer=adamw, **options):
    """A model, its batches, and how it is trained."""
    kind = LEARNERS[name]
    torch.manual_seed(0)
    model = kind.model().train()
    return model, [kind.batch(), kind.batch()], Training(loss=kind.loss, optimizer=optimizer, **options)


def test_a_step_with_dropout_is_measured_whatever_carries_it_out(laboratory):
    model, batches, training = given("mlp", accumulate=2, clip_norm=1.0)
    profile = laboratory.prepare(model, batches, training=training)
    assert profile.reference == "float64"
    assert profile.random
    assert any("draws random numbers" in note for note in profile.notes)
    assert profile.flops > 0
    assert profile.graph_count == 1
    assert profile.free_batch is None
    plans = [
        Plan(),
        Plan(optimizer="foreach", autocast="bfloat16", threads=1),
        replace(compiled(), optimizer="fused"),
        compiled(with_loss=True),
    ]
    for plan in plans:
        outcome = laboratory.trial(plan, Limits(500.0))
        assert isinstance(outcome, Measurement), (plan, outcome)
        assert outcome.accuracy.error <= outcome.accuracy.limit
        assert (outcome.counters.graphs > 0) == (not plan.is_eager)


def test_convolutions_are_laid_out_otherwise_with_their_state_and_their_dropout(laboratory):
    model, batches, training = given("cnn")
    optimizer = adamw(model.parameters())
    for batch in batches:
        optimizer.zero_grad()
        classified(model, batch).backward()
        optimizer.step()
    laboratory.prepare(model, batches, training=Training(loss=training.loss, optimizer=optimizer))
    for plan in (
        Plan(memory_format="channels_last", optimizer="fused"),
        replace(compiled(), memory_format="channels_last"),
    ):
        outcome = laboratory.trial(plan)
        assert isinstance(outcome, Measurement), (plan, outcome)


class Twice(TrainingStep):
    def update(self):
        for parameter in self.module.parameters():
            parameter.grad.mul_(2)
        super().update()


class Skipping(TrainingStep):
    def update(self):
        pass


class Keeping(TrainingStep):
    """Adds gradients up from step to step."""

    def clear(self):
        pass


class WithoutDropout(TrainingStep):
    def loss(self, batch):
        self.module.eval()
        try:
            return super().loss(batch)
        finally:
            self.module.train()


@pytest.mark.parametrize("wrong", [Twice, Skipping, Keeping, WithoutDropout])
def test_a_candidate_that_trains_otherwise_is_refused_before_it_is_timed(laboratory, monkeypatch, wrong):
    model, batches, training = given("mlp")
    laboratory.prepare(model, batches, training=training)
    right = building.as_planned

    def as_planned(step, plan, compiled, *, isolate):
        built = right(step, plan, compiled, isolate=isolate)
        if plan != Plan():  # the baseline stays right
            built.__class__ = wrong
        return built

    monkeypatch.setattr(building, "as_planned", as_planned)
    phases = Phases()
    outcome = measure(laboratory.task(Plan(optimizer="fused")), phases)
    assert isinstance(outcome, Failure)
    assert (outcome.stage, outcome.kind) == ("verify", "wrong_result")
    assert "timing" not in phases.seconds


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda model, batch: model(batch[0]), "not a scalar"),
        (lambda model, batch: fitted(model, batch).detach(), "needs no gradient"),
        (lambda model, batch: fitted(model, batch).item(), "returned a float"),
        (lambda model, batch: fitted(model, batch) / 0, "is inf"),
        (lambda _model, batch: fitted(ELSEWHERE, batch), "no gradient to any parameter that the optimizer holds"),
    ],
    ids=["no scalar", "no gradient", "no tensor", "not finite", "of another model"],
)
def test_a_loss_that_is_none_is_told_in_one_line(laboratory, loss, words):
    model, batches, training = given("mlp")
    laboratory.spool(model, batches, training=Training(loss=loss, optimizer=training.optimizer))
    reply = laboratory.profile()
    assert isinstance(reply, Failure)
    assert reply.kind == "invalid"
    assert reply.message.startswith("training.loss: ")
    assert words in reply.message
    assert "\n" not in reply.message
