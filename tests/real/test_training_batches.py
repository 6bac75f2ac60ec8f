"""Batches of other sizes, if the training allows them: probed, verified against float64, reported and prepared."""

import pytest
import torch
from learners import LEARNERS, adamw
from torch import nn

import autocompile
from autocompile.core.errors import InvalidValue
from autocompile.core.job import BatchTask
from autocompile.core.outcome import Failure, Measurement
from autocompile.core.plan import Plan
from autocompile.runtime import building
from autocompile.trial.batches import probe_batches
from autocompile.trial.measure import measure
from autocompile.trial.phases import Phases
from autocompile.workload.capture.script import workload_from_script
from autocompile.workload.training.step import TrainingStep
from autocompile.workload.training.training import Training

pytestmark = pytest.mark.usefixtures("one_thread")
KIND = LEARNERS["cnn"]


def training(**options):
    return Training(loss=KIND.loss, optimizer=adamw, **options)


@pytest.fixture
def spooled(laboratory):
    torch.manual_seed(0)
    laboratory.prepare(KIND.model().train(), [KIND.batch(), KIND.batch()], training=training(batch="tune"))
    return laboratory


def test_sizes_are_tried_where_a_batch_has_influence_on_each_sample(spooled):
    """As by batch normalization: another batch learns something else anyway."""
    assert spooled.workload.training.batch == "tune"
    probe = probe_batches(BatchTask(spooled.workload, (), below=33), Phases())
    assert (probe.given, probe.problem) == (8, "")
    assert [point.size for point in probe.points][:3] == [2, 4, 8]
    assert all(point.sample_ms for point in probe.points)


def test_a_size_that_is_too_small_ends_nothing(laboratory):
    model = nn.Sequential(nn.Linear(10, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).train()
    batch = torch.randn(4, 10), torch.randn(4, 1)
    laboratory.spool(model, [batch], training=Training(loss=LEARNERS["mlp"].loss, optimizer=adamw, batch="tune"))
    probe = probe_batches(BatchTask(laboratory.workload, (), below=9), Phases())
    assert [(point.size, bool(point.problem)) for point in probe.points] == [
        (1, True),
        (2, False),
        (4, False),
        (8, False),
    ]


def test_a_trial_of_another_batch_is_compared_at_that_batch(spooled):
    outcome = spooled.trial(Plan(batch=16, optimizer="fused"))
    assert isinstance(outcome, Measurement), outcome
    assert outcome.batch_factor == 2.0
    assert outcome.accuracy.reference == "float64"


class HalfOfIt(TrainingStep):
    """Learns from the first half of a batch that is larger than the given one."""

    def loss(self, batch):
        inputs, labels = batch
        return super().loss((inputs[:8] * 1.001, labels[:8]))


def test_what_is_wrong_at_that_batch_is_refused(spooled, monkeypatch):
    right = building.as_planned

    def as_planned(step, plan, compiled, *, isolate):
        built = right(step, plan, compiled, isolate=isolate)
        if plan != Plan():
            built.__class__ = HalfOfIt
        return built

    monkeypatch.setattr(building, "as_planned", as_planned)
    outcome = measure(spooled.task(Plan(batch=16)), Phases())
    assert isinstance(outcome, Failure)
    assert outcome.kind == "wrong_result"


@pytest.mark.parametrize(("batch", "words"), [("large", "unknown"), ([0], "not a list of sizes"), ((), "is empty")])
def test_what_is_no_batch_is_told(batch, words):
    with pytest.raises(InvalidValue, match=words):
        training(batch=batch)


def test_a_goal_alone_changes_nothing_of_what_is_learned():
    with pytest.raises(InvalidValue, match=r"changes what the model learns; set it in the training"):
        autocompile.Goal(batch="tune").for_training("fixed")
    assert autocompile.Goal(batch=[8, 16]).for_training([8, 16]).batch == (8, 16)
    assert autocompile.Goal().for_training("tune").batch == "tune"


SCRIPT = """
import torch
model = torch.nn.Linear(4, 1)
inputs = [torch.ones(2, 4)]
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def loss(model, batch):
    return model(batch).sum()
"""


@pytest.mark.parametrize(
    ("said", "batch"),
    [
        ('batch = "tune"', "tune"),
        ("batch = [1, 2]", "fixed"),
        ("import autocompile\ntraining = autocompile.Training(loss=loss, optimizer=optimizer, batch=[4])", [4]),
    ],
    ids=["by name", "left by a loop", "a training"],
)
def test_a_script_says_so(tmp_path, said, batch):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT + said)
    assert workload_from_script(path)[2].batch == batch
