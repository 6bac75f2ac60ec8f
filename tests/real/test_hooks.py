"""Models that have hooks from the start: they are compiled with them when they are called, and not ahead of time."""

import warnings

import pytest
import torch
from torch import nn

from autocompile.artifact.serving import Compiling, NoModel, Tally
from autocompile.core.outcome import Failure
from autocompile.core.serving import Serving
from autocompile.runtime.building import build
from autocompile.runtime.inductor.settings import compiled
from autocompile.runtime.model_watch import Watch
from autocompile.workload.call import Call
from autocompile.workload.samples import Sample

X = torch.randn(3, 4)


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.layer.register_forward_hook(lambda _module, _args, output: output * 2)

    def forward(self, x):
        return self.layer(x) + 1


def weight_normed():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 4)), nn.ReLU()).eval()


def test_hooks_that_were_there_are_no_change_and_others_are():
    model = Hooked()
    assert Watch(model).changed() == "the model has hooks"
    watch = Watch(model, runs_hooks=True)
    assert watch.changed() == ""
    handle = model.layer.register_forward_pre_hook(lambda *_: None)
    assert watch.changed() == "the model has other hooks"
    handle.remove()
    assert watch.changed() == ""
    model.layer._forward_hooks.clear()
    assert watch.changed() == "the model has other hooks"


@pytest.mark.parametrize("make", [Hooked, weight_normed])
def test_what_is_compiled_when_it_is_called_serves_with_them(make):
    torch._dynamo.reset()
    model, tally, serving = make().eval(), Tally(), Serving("inductor", "compile")
    with torch.no_grad():
        wanted = model(X)
    built = build(Call(model), compiled(backend="aot_eager"), [Sample((X,), {})], isolate=False)
    server = Compiling(built, NoModel(), Watch(model, runs_hooks=True), tally, serving, "inductor")
    for _ in range(2):
        torch.testing.assert_close(server((X,), {}), wanted)
    assert tally.calls == {"inductor": 2}


@pytest.mark.parametrize(("make", "remedy"), [(Hooked, ""), (weight_normed, "; call torch.nn.utils.remove_weight")])
def test_no_program_is_packed_and_the_reason_says_what_to_do(laboratory, make, remedy):
    laboratory.prepare(make().eval(), X, preload=True)
    failure = laboratory.pack(compiled())
    assert isinstance(failure, Failure)
    assert f"the model has hooks, which a compiled program does not run{remedy}" in failure.message
    assert failure.message.endswith("run") == (not remedy)
