"""Calls of modules that are compiled in place: of a model by its own methods, and of modules of torch itself."""

import pytest
import torch
import torch._inductor.config
from torch import nn
from torch._dynamo.utils import counters

from autocompile.core.plan import Plan
from autocompile.core.workload import TrainingEntry
from autocompile.runtime.building import as_trained, build
from autocompile.runtime.inductor.own_calls import call_of
from autocompile.runtime.inductor.settings import compiled
from autocompile.runtime.snippet import snippet
from autocompile.workload.call import Call
from autocompile.workload.samples import Sample
from autocompile.workload.training.step import TrainingStep
from autocompile.workload.training.training import Training

pytestmark = pytest.mark.usefixtures("one_thread")
WHOLE = compiled(backend="aot_eager")


@pytest.fixture(autouse=True)
def without_freezing():
    """With freezing, which is a setting of the process, each block has a program of its own."""
    with torch._inductor.config.patch(freezing=False):
        yield


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


def layers():
    """Equal blocks of torch's own classes."""
    torch.manual_seed(0)
    return nn.ModuleDict(
        {
            "first": nn.Sequential(*(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True) for _ in range(3))),
            "second": nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3))),
        }
    )


class Stacked(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = layers()

    def forward(self, x):
        for part in self.layers.values():
            x = part(x)
        return x


PARTS = tuple(f"layers.{name}.{n}" for name in ("first", "second") for n in range(3))


def test_equal_blocks_of_torchs_own_classes_share_a_program():
    model, x = Stacked(), torch.randn(2, 5, 8)
    torch._dynamo.reset()
    counters.clear()
    built = build(Call(model), compiled(backend="aot_eager", scope=PARTS), [Sample((x,), {})], isolate=True)
    torch.testing.assert_close(built(x), model(x), rtol=1e-4, atol=1e-5)
    assert counters["stats"]["unique_graphs"] == 2


def test_blocks_of_different_classes_of_torch_do_not_share_the_limit_of_programs():
    first, again, other = (call_of(make(4, 4)).__code__ for make in (nn.Linear, nn.Linear, nn.LSTM))
    assert first is again
    assert first is not other


def test_the_snippet_compiles_blocks_of_torchs_own_classes():
    model, x = Stacked(), torch.randn(2, 5, 8)
    wanted, names = model(x), {"model": model}
    torch._dynamo.reset()
    counters.clear()
    exec(snippet(compiled(backend="aot_eager", scope=PARTS), device_type="cpu", is_module=True), names)
    torch.testing.assert_close(names["run"](x), wanted, rtol=1e-4, atol=1e-5)
    assert counters["stats"]["unique_graphs"] == 2


def test_a_whole_model_of_torchs_own_class_is_trained_compiled():
    torch._dynamo.reset()
    counters.clear()
    training = Training(loss=lambda model, batch: model(batch).mean(), optimizer=torch.optim.SGD)
    step = as_trained(TrainingStep(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), training), WHOLE, isolate=True)
    step.run(Sample((torch.randn(4, 4),), {}))
    assert counters["stats"]["unique_graphs"] == 1
