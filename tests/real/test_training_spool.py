"""A training sent to another process: as one pickle, without changes to the user's objects; and what is refused."""

import hashlib
import pickle
import random
from collections import UserDict

import numpy as np
import pytest
import torch
from learners import LEARNERS, adamw, classified, fitted
from torch.utils.data import DataLoader, TensorDataset

from autocompile.artifact.step_forms import key_of
from autocompile.core.errors import InvalidWorkload
from autocompile.workload.spool import spool, unspool_step
from autocompile.workload.training.step import TrainingStep
from autocompile.workload.training.training import Training


def perceptron():
    torch.manual_seed(0)
    return LEARNERS["mlp"].model().train(), LEARNERS["mlp"].batch()


def state_of(model, optimizer):
    """A digest of all that belongs to the user: weights, gradients, the optimizer's state, the random state."""
    parts = [*model.state_dict().values(), *(p.grad for p in model.parameters()), torch.get_rng_state()]
    held = [optimizer.state_dict(), [id(p) for group in optimizer.param_groups for p in group["params"]]]
    whole = [None if part is None else part.numpy().tobytes() for part in parts]
    return hashlib.sha256(pickle.dumps((whole, held))).hexdigest()


def trained_once(model, batch, optimizer):
    fitted(model, batch).backward()
    optimizer.step()


def test_the_optimizers_parameters_are_the_models_own_in_the_other_process_and_the_users_stay(tmp_path):
    model, batch = perceptron()
    optimizer = adamw(model.parameters())
    trained_once(model, batch, optimizer)
    before = state_of(model, optimizer)
    workload = spool(model, [batch] * 3, tmp_path, training=Training(loss=fitted, optimizer=optimizer, accumulate=2))
    assert state_of(model, optimizer) == before
    assert (workload.kind, workload.sample_count) == ("training", 2)
    assert (workload.training.optimizer, workload.training.accumulate) == ("AdamW", 2)
    assert not workload.training.own_loss
    step, samples = unspool_step(workload)
    assert isinstance(step, TrainingStep)
    held = [p for group in step.training.optimizer.param_groups for p in group["params"]]
    assert all(one is other for one, other in zip(held, step.module.parameters(), strict=True))
    assert len(step.optimizer.state) == len(optimizer.state) > 0
    assert step.work(samples[0]).isfinite()


def test_a_loaders_batches_are_whole(tmp_path):
    model, (inputs, targets) = perceptron()
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=4)
    workload = spool(model, loader, tmp_path, training=Training(loss=fitted, optimizer=adamw))
    assert workload.sample_count == 4
    assert "4 steps were kept" in " ".join(workload.notes)
    assert workload.pipeline is not None
    step, samples = unspool_step(workload)
    assert [tuple(part.shape) for part in samples[0].args[0]] == [(4, 10), (4, 1)]
    step.check(samples[0])


class Drawing(TensorDataset):
    """Draws from every generator that users' datasets draw from."""

    def __getitem__(self, index):
        random.random(), np.random.rand(), torch.rand(1)  # noqa: NPY002
        return super().__getitem__(index)


def test_a_loader_leaves_every_generator_as_it_was(tmp_path):
    model, own = torch.nn.Linear(4, 1), torch.Generator().manual_seed(3)
    data = Drawing(torch.randn(12, 4), torch.randn(12, 1))

    def states():
        return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state(), own.get_state()  # noqa: NPY002

    before = states()
    training = Training(optimizer=adamw(list(model.parameters())), loss=fitted)
    spool(model, DataLoader(data, batch_size=4, shuffle=True, generator=own), tmp_path, training=training)
    assert all(str(one) == str(other) for one, other in zip(states(), before, strict=True))
    assert torch.equal(states()[3], before[3])


def test_a_mapping_of_any_class_is_a_batch(tmp_path):
    """As tokenizers give it."""
    model = torch.nn.Linear(4, 1)
    batch = UserDict(x=torch.randn(3, 4), y=torch.randn(3, 1))
    training = Training(
        optimizer=adamw(list(model.parameters())), loss=lambda run, given: fitted(run, (given["x"], given["y"]))
    )
    workload = spool(model, [batch, batch], tmp_path, training=training)
    assert [spec.shape for spec in workload.signatures[0].tensors] == [(3, 4), (3, 1)]
    assert key_of([batch]) == key_of([UserDict({name: value + 1 for name, value in batch.items()})])


def test_which_implementations_of_the_optimizer_there_are(tmp_path):
    model, batch = perceptron()

    def without(make):
        directory = tmp_path / str(len(list(tmp_path.iterdir())))
        return spool(model, [batch], directory, training=Training(loss=fitted, optimizer=make)).training.without

    assert without(adamw) == {}
    assert "is already fused" in without(lambda p: torch.optim.AdamW(p, fused=True))["fused"]
    assert "has no fused implementation" in without(torch.optim.Rprop)["fused"]


def test_another_loss_or_optimizer_is_another_workload(tmp_path):
    model, batch = perceptron()
    trainings = [
        Training(loss=fitted, optimizer=adamw),
        Training(loss=classified, optimizer=adamw),
        Training(loss=fitted, optimizer=torch.optim.SGD),
        Training(loss=fitted, optimizer=adamw, clip_norm=1.0),
        Training(loss=fitted, optimizer=adamw),
    ]
    found = [
        spool(model, [batch], tmp_path / str(number), training=one).fingerprint for number, one in enumerate(trainings)
    ]
    assert len(set(found)) == 4
    assert found[0] == found[-1] != spool(model, batch[0], tmp_path / "call").fingerprint


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"optimizer": lambda _: adamw(torch.nn.Linear(2, 2).parameters())}, "holds none of the model's parameters"),
        ({"batches": []}, "there is no batch"),
        ({"batches": [3]}, "contains no tensor"),
        ({"batches": [(torch.ones(2), torch.ones(2)), {"x": torch.ones(2)}]}, r"batches\[1\]"),
        ({"model": torch.sin}, "has no parameters to train"),
    ],
)
def test_what_cannot_be_trained_is_told_in_one_line(tmp_path, changes, words):
    model, batch = perceptron()
    given = {"model": model, "batches": [batch], "optimizer": adamw} | changes
    training = Training(loss=fitted, optimizer=given["optimizer"])
    with pytest.raises(InvalidWorkload, match=words) as caught:
        spool(given["model"], given["batches"], tmp_path, training=training)
    assert "\n" not in str(caught.value)
