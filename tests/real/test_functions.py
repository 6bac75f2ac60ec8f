"""Functions of scripts whose calls are tuned and served: `autocompile tune --function` and `autocompile run`."""

import argparse
import copy
import json
import subprocess
import sys
import types

import numpy as np
import pytest
import torch
from laboratory import reply_to
from torch import nn

from autocompile.core.errors import InvalidValue, InvalidWorkload
from autocompile.core.job import CaptureTask, Limits, Watching
from autocompile.core.outcome import Failure
from autocompile.core.workload import Workload
from autocompile.workload.capture.place import script_place
from autocompile.workload.function.holding import Held, divided
from autocompile.workload.function.module import FunctionModule
from autocompile.workload.function.naming import FunctionName, function_name, placed
from autocompile.workload.function.places import Surroundings
from autocompile.workload.spool import unspool

AUTOCOMPILE = [sys.executable, "-m", "autocompile"]
QUICK = """
[search]
max_trials = 2
[dimensions]
runtime = ['eager']
amp = ['off']
threads = []
[screening]
precision = 0.2
limit_s = 0.5
[finals]
candidates = 1
processes = 1
limit_s = 0.5
"""
HELPING = """
import torch
from torch import nn

model, scale, seen = None, 2.0, []

def build():
    global model
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3)).eval()

def prepared(x):
    return (x - x.mean(-1, keepdim=True)) / scale

@torch.no_grad()
def predict(x, top=1):
    return model(prepared(x)).softmax(-1).topk(top)

class Pipeline:
    def __init__(self, model):
        self.model, self.shift = model, torch.ones(4)

    def run(self, x):
        with torch.no_grad():
            return {"scores": self.model(x + self.shift)}

def keeps(x):
    with torch.no_grad():
        seen.append(model(x))
    return seen[-1]
"""
SCRIPT = """
import sys, torch, helping
from helping import Pipeline, predict

helping.build()

@torch.no_grad()
def own(net, x):
    return net(x).sigmoid()

def loud(x):
    print(x.shape)

def counted(x):
    global calls
    calls += 1
    return x

def trains(x):
    loss = helping.model(x).sum()
    loss.backward()
    return loss.detach()

if __name__ == "__main__":
    calls, total, pipeline = 0, 0.0, Pipeline(helping.model)
    for n in range(12):
        x = torch.linspace(0, 1, 4 * (3 if n % 4 else 2)).reshape(-1, 4)
        total += predict(x).values.sum().item() + own(helping.model, x).sum().item()
        total += pipeline.run(x)["scores"].sum().item()
        loud(x), counted(x), helping.keeps(x), trains(x)
        if n == 9 and "rescale" in sys.argv:
            helping.scale = 4.0
    print(f"{total:.5f}")
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    directory = tmp_path_factory.mktemp("scripts")
    (directory / "helping.py").write_text(HELPING)
    (directory / "script.py").write_text(SCRIPT)
    (directory / "quick.toml").write_text(QUICK)
    return directory


@pytest.fixture
def watch(runner, scripts, tmp_path):
    """Watch the script for a function's calls."""

    def watched(function):
        watching = Watching(function=str(placed(function_name(function), scripts / "script.py")))
        task = CaptureTask(str(scripts / "script.py"), str(tmp_path / function), watching=watching)
        return reply_to(runner, task, Limits(120.0), cache="capture")

    return watched


@pytest.mark.parametrize("function", ["predict", "helping:predict", "own", "Pipeline.run"])
def test_a_functions_calls_are_seen_wherever_it_is_called_from(watch, function):
    reply = watch(function)
    assert isinstance(reply, Workload), reply
    assert (reply.script.calls, reply.script.with_gradients) == (12, False)
    assert reply.script.function.endswith(function.partition(":")[2] or function)
    shares = {signature.tensors[0].shape: signature.weight for signature in reply.signatures}
    assert shares == {(2, 4): pytest.approx(0.25), (3, 4): pytest.approx(0.75)}
    model, samples = unspool(reply)
    assert isinstance(model, FunctionModule)
    assert reply.parameter_count == sum(parameter.numel() for parameter in model.parameters()) == 67
    assert [type(one).__name__ for one in samples[0].args] == ["Tensor"]
    model(*samples[0].args)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("loud", "does more than compute, and a compiled program would not do that: loud() uses print"),
        ("counted", "counted() writes the variable calls"),
        ("helping:keeps", "changes seen, which is defined outside of it"),
        ("trains", "computes gradients: use --module to name the module that it trains"),
        ("helping:build", "calls helping:build without any tensor among its arguments"),
        ("helping:absent", "helping defines no absent; it has build, prepared, predict, keeps"),
        ("helping:Pipeline", "helping:Pipeline is not a function: it is a type"),
        ("elsewhere:predict", "the script never imports elsewhere"),
        ("helping:Pipeline.__init__", "without any tensor"),
    ],
)
def test_what_cannot_be_tuned_is_told_in_a_line(watch, function, said):
    reply = watch(function)
    assert isinstance(reply, Failure), reply
    assert said in reply.message
    assert "\n" not in reply.message


def test_a_name_that_is_none_is_told_before_anything_runs(scripts):
    with pytest.raises(InvalidWorkload, match=r"defines no function nothing at its top level.* it defines: own, loud"):
        placed(function_name("nothing"), scripts / "script.py")
    with pytest.raises(InvalidValue, match="names no function"):
        function_name("not a name")
    assert placed(function_name("predict"), scripts / "script.py") == FunctionName("helping", ("predict",))


def test_a_functions_calls_are_served_until_it_uses_something_else(scripts):
    def command(*arguments):
        return subprocess.run(
            [*AUTOCOMPILE, *arguments], capture_output=True, text=True, cwd=scripts, timeout=400, check=False
        )

    tuned = command(
        "tune", "script.py", "--function", "predict", "--budget", "200s", "--strategy", "quick.toml", "--json"
    )
    assert tuned.returncode == 0, tuned.stderr
    assert json.loads(tuned.stdout)["workload"]["script"]["function"] == "helping:predict"
    for arguments, served in (((), 12), (("rescale",), 10)):
        plain = subprocess.run(
            [sys.executable, "script.py", *arguments], capture_output=True, text=True, cwd=scripts, check=True
        )
        ran = command("run", "rec", "script.py", *arguments)
        assert (ran.returncode, ran.stdout) == (0, plain.stdout), ran.stderr
        assert f"helping:predict as eager: calls {served} by eager" in ran.stderr
        assert ("2 calls not as recommended: scale, which it uses, was changed" in ran.stderr) == bool(arguments)


class _Scores(nn.Module):
    def forward(self, x):
        return x * 2


def _scored(model, x, *, shift, scorer):
    return scorer(model(x) + shift)


def test_a_copy_finds_its_own_modules_and_shares_what_it_is_told_to():
    model, scorer = nn.Linear(2, 2), _Scores()
    held, others, named = divided(_scored, (model, torch.ones(1, 2)), {"shift": 1.0, "scorer": scorer})
    assert (held.objects, len(others), named) == ((model, scorer), 1, {"shift": 1.0})
    function = FunctionModule("_scored", _scored, held)
    assert set(dict(function.named_parameters()).values()) == set(model.parameters())
    twin = copy.deepcopy(function).double()
    wide = twin(torch.ones(1, 2, dtype=torch.float64), shift=1.0)
    assert wide.dtype == torch.float64
    torch.testing.assert_close(wide.float(), function(torch.ones(1, 2), shift=1.0))
    with torch.no_grad():
        model.weight.zero_()
    assert (twin(torch.ones(1, 2, dtype=torch.float64), shift=1.0) == wide).all()
    sharing = copy.deepcopy(function, {id(parameter): parameter for parameter in function.parameters()})
    assert set(sharing.parameters()) == set(model.parameters())


def test_what_a_function_uses_is_watched():
    space = {"model": nn.Linear(2, 2), "mean": torch.zeros(2), "limit": 3}
    function = types.FunctionType(compile("model(x - mean).clamp(max=limit)", "f", "eval"), space)
    around = Surroundings(function)
    assert not around.moved()
    space["limit"] = 4
    assert around.moved() == "limit"
    space["limit"] = 3
    space["mean"].add_(1)
    assert around.moved() == "mean"
    around = Surroundings(function)
    space["model"] = nn.Linear(2, 2)
    assert around.moved() == "model"
    assert FunctionModule("f", function, Held()).constants != FunctionModule("f", lambda x: x, Held()).constants


class _Options:
    power = 2

    def __init__(self, **values):
        vars(self).update(values)


def _used(**space):
    code = compile("lambda x: model(x) * args.t + CFG['t'] - act(x) + config.power", "f", "eval")
    space = {"model": nn.Linear(2, 2), "args": argparse.Namespace(t=1), "act": torch.relu, **space}
    return eval(code, {"CFG": {"t": [1]}, "config": _Options, **space})


def test_whatever_a_function_uses_is_watched_and_a_part_of_what_it_is():
    function = _used()
    space = function.__globals__
    before = FunctionModule("f", function, Held()).constants
    for change, undo, name in (
        (lambda: vars(space["args"]).update(t=3), lambda: vars(space["args"]).update(t=1), "t"),
        (lambda: space["CFG"]["t"].append(2), space["CFG"]["t"].pop, "CFG"),
        (lambda: space.update(act=torch.tanh), lambda: space.update(act=torch.relu), "act"),
        (lambda: setattr(_Options, "power", 3), lambda: setattr(_Options, "power", 2), "power"),
    ):
        around = Surroundings(function)
        assert (around.moved(), around.unseen) == ("", "")
        change()
        try:
            assert around.moved() == name
            if name != "act":  # code is compared by itself
                assert FunctionModule("f", function, Held()).constants != before
        finally:
            undo()
        assert around.moved() == ""
    space["model"].requires_grad_(False)
    assert FunctionModule("f", function, Held()).constants != before


def test_what_it_holds_is_watched_too():
    options = _Options(t=2, net=nn.Linear(2, 2), inner=_Options(shift=torch.ones(2)))
    held, _others, _named = divided(lambda o, x: o.net(x) * o.t + o.inner.shift, (options, torch.ones(1, 2)), {})
    function = FunctionModule("f", lambda o, x: o.net(x) * o.t + o.inner.shift, held).function
    for change, name in (
        (lambda: setattr(options, "t", 3), "t"),
        (lambda: options.inner.shift.add_(1), "shift"),
        (lambda: setattr(options, "net", nn.Linear(2, 2)), "net"),
    ):
        around = Surroundings(function)
        assert around.moved() == ""
        change()
        assert around.moved() == name


@pytest.mark.parametrize(
    ("value", "kind"), [({"t": torch.ones(1)}, "dict"), (np.ones(2), "ndarray"), (torch.Generator(), "Generator")]
)
def test_what_could_change_unseen_is_told(value, kind):
    assert Surroundings(_used(CFG=value)).unseen == f"CFG, a {kind}"


@torch.no_grad()
def _under_a_decorator(x, model):
    return model(x)


def test_objects_are_found_beneath_a_decorator():
    model = nn.Linear(2, 2)
    held, others, named = divided(_under_a_decorator, (torch.ones(1, 2), model), {})
    assert (held.objects, len(others), named) == ((model,), 1, {})


def test_a_module_is_found_as_python_finds_it(tmp_path, monkeypatch):
    package = tmp_path / "pkg" / "deep"
    package.mkdir(parents=True)
    for file in (tmp_path / "pkg" / "__init__.py", package / "__init__.py"):
        file.write_text("raise RuntimeError('nothing is to be imported')")
    (package / "train.py").touch()
    (package / "__main__.py").touch()
    monkeypatch.chdir(tmp_path)
    assert script_place("pkg.deep.train", as_module=True).path == package / "train.py"
    assert script_place("pkg.deep", as_module=True).package == "pkg.deep"
    with pytest.raises(InvalidWorkload, match="no such module"):
        script_place("pkg.absent", as_module=True)
