"""The user's input for a training: loss, batches and description; and the messages for wrong input."""

import copy
from types import SimpleNamespace

import pytest
import torch
from learners import adamw, fitted, learner
from torch import nn

from autocompile.core.errors import InvalidValue, InvalidWorkload, UsageError
from autocompile.workload.samples import Sample
from autocompile.workload.training.step import TrainingStep
from autocompile.workload.training.training import Training, own_loss


class Doubled(nn.Module):
    """Gives its loss itself, as the models of a well-known library do."""

    def __init__(self, form):
        super().__init__()
        self.linear, self.form = nn.Linear(10, 1), form

    def forward(self, x, y):
        return self.form(loss=(self.linear(x) - y).square().mean())


@pytest.mark.parametrize("form", [SimpleNamespace, dict], ids=["attribute", "key"])
def test_by_default_the_loss_is_the_outputs_own(form):
    model, x, y = Doubled(form), torch.randn(4, 10), torch.randn(4, 1)
    losses = [own_loss(model, batch).item() for batch in ((x, y), [x, y], {"y": y, "x": x})]
    assert len(set(losses)) == 1
    step = TrainingStep(model, Training(optimizer=adamw))
    assert step.work(Sample(({"x": x, "y": y},), {})).item() == losses[0]
    with pytest.raises(InvalidWorkload, match="the model's output, a Tensor, has no loss; give loss=, a function"):
        own_loss(nn.Linear(10, 1), x)


def test_batches_become_steps():
    training = Training(optimizer=adamw, accumulate=2)
    assert [sample.args for sample in training.samples_of(["a", "b", "c"])] == [("a", "b"), ("c", "a")]
    assert training.samples_of([(1, 2)])[0].args == ((1, 2), (1, 2))
    with pytest.raises(InvalidWorkload, match="batches: there is no batch"):
        training.samples_of([])
    with pytest.raises(InvalidWorkload) as raised:
        training.samples_of([(1, 2), {"x": 1}])
    assert str(raised.value) == (
        "batches[1]: is a dict with ['x'], and batches[0] is a tuple with [0], [1]; give batches of the same structure"
    )


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda model, batch: model(batch[0]), "training.loss: returned a tensor of shape (32, 1), not a scalar"),
        (lambda model, batch: fitted(model, batch).item(), "returned a float, not a tensor"),
        (lambda model, batch: fitted(model, batch).detach(), "a tensor that needs no gradient"),
        (lambda model, batch: fitted(model, batch) * torch.nan, "training.loss: is nan"),
        (lambda model, batch: fitted(model, batch) / 0, "training.loss: is inf"),
        (
            lambda model, batch: fitted(copy.deepcopy(model), batch),
            "gives no gradient to any parameter that the optimizer holds",
        ),
    ],
    ids=["no scalar", "no tensor", "no gradient", "NaN", "infinite", "of another model"],
)
def test_a_loss_that_is_none_is_told_in_one_line(loss, words):
    step, sample = learner("mlp")
    step = TrainingStep(step.module, Training(loss=loss, optimizer=adamw))
    before = {name: (tensor, tensor.clone()) for name, tensor in step.state.named()}
    with pytest.raises(InvalidWorkload) as raised:
        step.check(sample)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
    after = dict(step.state.named())
    assert after.keys() == before.keys()
    assert all(after[name] is tensor and torch.equal(tensor, value) for name, (tensor, value) in before.items())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"optimizer": 3}, "training.optimizer: is a int; give a torch.optim.Optimizer"),
        ({"optimizer": adamw, "loss": 3}, "training.loss: is a int"),
        ({"optimizer": adamw, "accumulate": 0}, "training.accumulate: is 0"),
        ({"optimizer": adamw, "accumulate": 1.5}, "training.accumulate: is 1.5"),
        ({"optimizer": adamw, "clip_norm": 0.0}, "training.clip_norm: is 0.0"),
        ({"optimizer": adamw, "clip_norm": float("nan")}, "training.clip_norm: is nan"),
    ],
)
def test_a_description_that_cannot_be_is_told(options, words):
    with pytest.raises(InvalidValue) as raised:
        Training(**options)
    assert words in str(raised.value)
    assert isinstance(raised.value, UsageError)
