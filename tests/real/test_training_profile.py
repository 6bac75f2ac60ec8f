"""Profiles of a training step: its phases, their work, and exactly what holds its memory."""

import threading
import time

import pytest
import torch
from laboratory import reply_to
from learners import adamw, fitted, learner
from msgspec.structs import replace
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from autocompile.core.job import Limits, LoaderTask
from autocompile.core.pipeline import Loaders, LoaderSetting
from autocompile.report.profile import profile_lines
from autocompile.trial.profile.anatomy import Found, anatomy_of
from autocompile.trial.profile.counting import work_of
from autocompile.trial.profile.kernels import kernels_of
from autocompile.trial.profile.profiling import variants_of
from autocompile.trial.profile.step_memory import step_memory
from autocompile.trial.profile.step_phases import phase_shares
from autocompile.workload.call import Call
from autocompile.workload.capture import kept_loader
from autocompile.workload.samples import Sample
from autocompile.workload.spool import spool
from autocompile.workload.training.step import TrainingStep
from autocompile.workload.training.training import Training

ROWS, FLOAT = 32, 4
PARAMETERS = (10 * 64 + 64) + (64 * 64 + 64) + (64 + 1)


def perceptron():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 64), nn.GELU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)).train()


def step_of(model, optimizer=adamw, **options):
    return TrainingStep(model, Training(loss=fitted, optimizer=optimizer, **options))


def batch():
    return torch.randn(ROWS, 10), torch.randn(ROWS, 1)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_what_holds_the_memory_of_a_step(accumulate):
    step, sample = step_of(perceptron(), accumulate=accumulate), Sample(tuple(batch() for _ in range(accumulate)), {})
    memory = step_memory(step, sample)
    assert memory.parameters_bytes == memory.gradients_bytes == FLOAT * PARAMETERS
    assert memory.optimizer_bytes == 2 * FLOAT * PARAMETERS + 6 * FLOAT, "two moments, and a counter each"
    assert memory.buffers_bytes == 0
    assert memory.batches_bytes == accumulate * ROWS * 11 * FLOAT
    # The inputs of GELU and of the second and third layer (the latter is also ReLU's output), and the predictions.
    assert memory.activations_bytes == (3 * ROWS * 64 + ROWS) * FLOAT, "of one batch, which is freed before the next"
    held = memory.parameters_bytes + memory.optimizer_bytes + memory.batches_bytes
    assert memory.peak_bytes >= held + max(memory.gradients_bytes, memory.activations_bytes)


def test_memory_that_is_shared_counts_once():
    model = perceptron()
    model.append(nn.Linear(1, 1)).append(nn.BatchNorm1d(1))
    model[0].bias = model[2].bias
    memory = step_memory(step_of(model, torch.optim.SGD), Sample((batch(),), {}))
    assert memory.parameters_bytes == FLOAT * (PARAMETERS - 64 + 2 + 2)
    assert memory.gradients_bytes == memory.parameters_bytes
    assert memory.optimizer_bytes == 0
    assert memory.buffers_bytes == 2 * FLOAT + 8, "mean, variance, and a counter of batches"


def test_the_work_of_each_phase():
    step, sample = step_of(perceptron(), clip_norm=1.0), Sample((batch(),), {})
    work = work_of(step, sample)
    assert list(work.phases) == ["other", "forward", "backward", "clipping", "optimizer"]
    assert work.phases["forward"].flops == 2 * ROWS * (10 * 64 + 64 * 64 + 64)
    assert work.phases["backward"].flops == 2 * ROWS * (10 * 64 + 2 * (64 * 64 + 64)), "no gradient of the inputs"
    assert work.phases["optimizer"].bytes >= 3 * FLOAT * PARAMETERS
    for figure in ("flops", "bytes", "operators"):
        assert sum(getattr(part, figure) for part in work.phases.values()) == getattr(work.whole, figure)


@pytest.mark.parametrize("name", ["transformer", "cnn"])
def test_every_kernel_belongs_to_a_phase(name):
    step, sample = learner(name, accumulate=2)
    shares = phase_shares(step, sample, "cpu")
    assert shares.keys() == {"forward", "backward", "optimizer", "other"}
    assert sum(shares.values()) == pytest.approx(1)
    assert min(shares.values()) > 0
    kernels = kernels_of(step, sample, "cpu", 2)
    assert sum(part.per_call for part in kernels.phases.values()) == pytest.approx(kernels.per_call, abs=2)
    assert all(kernels.phases[phase].per_call > 0 for phase in ("forward", "backward", "optimizer"))
    assert step._hears is None


def test_a_call_has_no_phases():
    call, sample = Call(perceptron()), Sample((torch.randn(ROWS, 10),), {})
    assert phase_shares(call, sample, "cpu") == {}
    assert kernels_of(call, sample, "cpu", 1).phases == {}
    assert work_of(call, sample).phases == {}


class Slow(Dataset):
    """Rows that take long enough to come for a step to wait for them."""

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        time.sleep(0.0005)
        return torch.randn(10), torch.ones(1)


class Locked(Slow):
    def __init__(self):
        self.lock = threading.Lock()


def test_a_profile_tells_all_of_it_in_steps(laboratory):
    loader = DataLoader(Slow(), batch_size=ROWS)
    found = laboratory.prepare(perceptron(), loader, training=Training(loss=fitted, optimizer=adamw))
    step = found.step
    assert [phase.name for phase in step.phases] == ["input", "forward", "backward", "optimizer", "other"]
    assert sum(phase.share for phase in step.phases) == pytest.approx(1)
    assert found.input_share > 0
    assert step.share("input") == pytest.approx(found.input_share)
    assert sum(phase.ms for phase in step.phases[1:]) == pytest.approx(found.baseline_ms.value)
    assert sum(phase.flops for phase in step.phases) == found.flops
    assert {phase.bound for phase in step.phases} <= {"input", "compute", "memory", "overhead", "unknown"}
    assert step.memory.parameters_bytes == FLOAT * PARAMETERS
    text = "\n".join(profile_lines(found, laboratory.workload))
    assert " a call" not in text
    assert "forward by submodule" in text
    for words in ("waiting for batches", "forward and loss", "backward", "optimizer", "memory of a step: param"):
        assert words in text


def test_batches_that_are_there_are_not_waited_for():
    step, sample = step_of(perceptron()), Sample((batch(),), {})
    kernels = kernels_of(step, sample, "cpu", 1)
    found, notes = anatomy_of(step, sample, Found(5.0, 0.0, "", work_of(step, sample), kernels, None))
    assert [phase.name for phase in found.phases] == ["forward", "backward", "optimizer", "other"]
    assert sum(phase.ms for phase in found.phases) == pytest.approx(5.0)
    assert {phase.bound for phase in found.phases} == {"unknown"}, "without ceilings nothing can be said"
    assert notes == []


def test_a_loader_is_tried_with_other_settings_while_the_model_trains(laboratory):
    loader = DataLoader(Slow(), batch_size=ROWS, shuffle=True, collate_fn=lambda rows: default_collate(rows[:16]))
    training = Training(loss=fitted, optimizer=adamw, accumulate=2)
    laboratory.spool(perceptron(), loader, training=training)
    assert laboratory.workload.pipeline.stays == ""
    found = reply_to(laboratory.runner, LoaderTask(laboratory.workload, 1.0), Limits(120.0), cache="loader")
    assert isinstance(found, Loaders), found
    assert found.own.setting == LoaderSetting(0, 0, pinned=False)
    assert found.tried
    assert all(trial.setting != found.own.setting for trial in found.tried)
    for trial in (found.own, *found.tried):
        assert trial.steps >= 2
        assert 0 <= trial.waiting_ms <= trial.step_ms
    assert found.own.waiting_ms > found.own.step_ms / 10, "whoever loads by itself waits for all of it"
    assert loader._iterator is None, "the user's own loader is left as it was"


def test_what_is_no_loader_has_no_settings(tmp_path):
    training = Training(loss=fitted, optimizer=adamw)
    workload = spool(perceptron(), (batch() for _ in range(4)), tmp_path, training=training)
    assert workload.pipeline.stays == "it does not iterate like torch's own DataLoader"


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        (Locked(), "it cannot be sent to another process: cannot pickle '_thread.lock'"),
        (TensorDataset(torch.zeros(1 << 10, 10), torch.zeros(1 << 10, 1)), "its dataset holds more than 32 KiB"),
        (list(zip(torch.zeros(400, 10).numpy(), torch.zeros(400, 1).numpy(), strict=True)), ""),
    ],
    ids=["locked", "large", "a list of arrays"],
)
def test_a_loader_that_other_processes_cannot_have_says_why(tmp_path, monkeypatch, dataset, said):
    monkeypatch.setattr(kept_loader, "_LARGEST_BYTES", 32 << 10)
    training = Training(loss=fitted, optimizer=adamw)
    workload = spool(perceptron(), DataLoader(dataset, batch_size=ROWS), tmp_path, training=training)
    assert workload.pipeline.stays.startswith(said)
    assert bool(workload.pipeline.stays) == bool(said)
    assert (tmp_path / "loader.pkl").exists() != bool(said)


def test_what_a_large_training_is_compared_on_fits_into_memory(tmp_path):
    step, sample = learner("mlp")
    given = spool(step.module, [sample.args[0]], tmp_path, training=Training(loss=fitted, optimizer=adamw))
    counts = [variants_of(replace(given, parameter_bytes=size)) for size in (10**4, 5 * 10**6, 10**9)]
    assert counts == [2, 1, 0]
    assert variants_of(replace(given, parameter_bytes=10**9, training=None)) == 2
