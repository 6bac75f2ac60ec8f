"""A loss that calls a method of the model, which calls the model."""

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from autocompile.core.plan import Plan
from autocompile.core.workload import TrainingEntry
from autocompile.runtime.building import as_trained
from autocompile.runtime.inductor.settings import compiled
from autocompile.runtime.snippet import snippet
from autocompile.workload.samples import Sample
from autocompile.workload.training.step import TrainingStep
from autocompile.workload.training.training import Training

pytestmark = pytest.mark.usefixtures("one_thread")
WHOLE = compiled(backend="aot_eager")


class Teaching(nn.Module):
    """Has a training step, as modules of Lightning do."""

    def __init__(self):
        super().__init__()
        self.layer, self.classes = nn.Linear(4, 3), []

    def forward(self, x):
        return self.layer(x).relu()

    def training_step(self, batch):
        self.classes.append(type(self))
        return nn.functional.mse_loss(self(batch), torch.ones(len(batch), 3))


def taught(loss, plan):
    torch.manual_seed(0)
    training = Training(loss=loss, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    given, sample = TrainingStep(Teaching(), training), Sample((torch.randn(4, 4),), {})
    torch._dynamo.reset()
    counters.clear()
    step = as_trained(given, plan, isolate=True)
    losses = [float(step.run(sample)) for _ in range(3)]
    return losses, step.module, counters["stats"]["unique_graphs"]


@pytest.mark.parametrize(
    "loss",
    [lambda model, batch: model.training_step(batch), lambda model, batch: model(batch).mean()],
    ids=["method", "call"],
)
def test_its_calls_are_compiled_and_the_model_stays_as_it_is(loss):
    expected, _module, none = taught(loss, Plan())
    losses, module, graphs = taught(loss, WHOLE)
    assert (none, graphs) == (0, 1)
    assert losses == pytest.approx(expected, rel=1e-5)
    assert "_compiled_call_impl" not in vars(module)
    assert set(module.classes) <= {Teaching}


def test_what_the_loss_raises_leaves_the_model_as_it_is():
    def loss(model, batch):
        raise ValueError("no loss")

    step = as_trained(TrainingStep(Teaching(), Training(loss=loss, optimizer=torch.optim.SGD)), WHOLE, isolate=True)
    with pytest.raises(ValueError, match="no loss"):
        step.run(Sample((torch.randn(4, 4),), {}))
    assert "_compiled_call_impl" not in vars(step.module)


def test_the_snippet_compiles_them_too():
    code = snippet(WHOLE, device_type="cpu", is_module=True, training=TrainingEntry("SGD"))
    model = Teaching()
    names = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}
    torch._dynamo.reset()
    counters.clear()
    names["loss"] = lambda model, batch: model.training_step(batch)
    exec(code, names)
    names["step"](torch.randn(4, 4))
    assert counters["stats"]["unique_graphs"] == 1
