"""Programs that contain their weights, in production: changed weights, no model, NumPy arrays, damaged files."""

import json
import os
import shutil
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from laboratory import Laboratory
from msgspec.structs import replace
from places import REPOSITORY

import autocompile
from autocompile.artifact import programs
from autocompile.artifact.integrity import open_manifest, write_manifest
from autocompile.artifact.store import add
from autocompile.core.envelope import Segment
from autocompile.core.estimate import Estimate
from autocompile.core.manifest import Served, Standby
from autocompile.core.outcome import Failure
from autocompile.core.plan import Plan
from autocompile.core.serving import AS_IT_IS
from autocompile.runtime.base import NotLoadable
from autocompile.runtime.catalogue import serving_of

MODEL = """
from dataclasses import dataclass

import torch
from transformers.utils import ModelOutput


@dataclass
class Scores(ModelOutput):
    scores: torch.Tensor = None
    hidden: torch.Tensor = None


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.leave = torch.nn.Linear(64, 256), torch.nn.Linear(256, 8)

    def forward(self, x):
        hidden = torch.nn.functional.gelu(self.enter(x))
        return Scores(scores=self.leave(hidden).softmax(-1), hidden=hidden)


def net():
    torch.manual_seed(0)
    return Net().eval()
"""

WITHOUT_TORCH = """
import json, sys
import numpy as np
import autocompile

module = autocompile.load(sys.argv[1], arrays="numpy")
x = np.load(sys.argv[2])
output = module(x)
print(json.dumps({
    "torch": "torch" in sys.modules, "names": list(output), "scores": output["scores"].tolist(),
    "status": [module.status.runtime, module.status.calls, list(module.status.notes)],
}))
"""

WITHOUT_THE_MODEL = """
import json, sys
import numpy as np, torch
import autocompile

module = autocompile.load(sys.argv[1])
output = module(torch.from_numpy(np.load(sys.argv[2])))
print(json.dumps({
    "transformers": "transformers" in sys.modules, "kind": type(output).__name__, "scores": output["scores"].tolist(),
    "runtime": module.status.runtime, "notes": list(module.status.notes),
}))
"""


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    """The model's class, in a module that other processes can be without."""
    directory = tmp_path_factory.mktemp("model")
    (directory / "net.py").write_text(MODEL)
    sys.path.insert(0, str(directory))
    try:
        from net import net

        yield net
    finally:
        sys.path.remove(str(directory))


PLANS = {
    "openvino": Plan(runtime="openvino"),
    "onnxruntime": Plan(runtime="onnxruntime"),
    "aot": Plan(runtime="aot", settings={"options": {"freezing": True}}),
}
X = torch.randn(16, 64, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def laboratory(runner, tmp_path_factory):
    return Laboratory(runner, tmp_path_factory.mktemp("laboratory"))


@pytest.fixture(scope="module")
def live(net, laboratory):
    """What serves changed weights, packed once for all."""
    laboratory.prepare(net(), X)
    return laboratory.pack(Plan(runtime="aot"))


@pytest.fixture(scope="module", params=PLANS)
def packed(request, net, live, laboratory):
    """An artifact of each runtime that holds its weights, as a run leaves it: what follows them lies beside."""
    if request.param != "aot":
        pytest.importorskip(request.param)
    laboratory.prepare(net(), X)
    plan = PLANS[request.param]
    directory = laboratory.pack(plan, serving_of(plan))
    assert not isinstance(directory, Failure), directory
    beside = open_manifest(live)
    add(live, directory, beside)
    standby = Standby(beside.plan, beside.identity, beside.programs, beside.requirements, beside.files)
    write_manifest(directory, replace(open_manifest(directory), standby=standby))
    np.save(directory.parent / f"{directory.name}.npy", X.numpy())
    return request.param, directory


@pytest.fixture(scope="module")
def fixed(net, live, laboratory):
    """One whose programs take the given sizes alone; what takes others lies beside."""
    laboratory.prepare(net(), X)
    directory = laboratory.pack(Plan(runtime="aot", sizes="fixed"))
    assert not isinstance(directory, Failure), directory
    beside = open_manifest(live)
    add(live, directory, beside)
    standby = Standby(beside.plan, beside.identity, beside.programs, beside.requirements, beside.files)
    write_manifest(directory, replace(open_manifest(directory), standby=standby))
    return directory


def test_other_sizes_than_the_given_ones_are_served_by_the_program_beside(fixed, net):
    module = autocompile.load(fixed, net())
    assert "the program only takes calls of the sizes that it was compiled for" in module.status.notes
    for rows in (X, X[:5], X[:3], X):
        with torch.no_grad():
            torch.testing.assert_close(module(rows)["scores"], net()(rows)["scores"])
    assert module.status.calls == {"aot": 4}
    (fallback,) = module.status.fallbacks
    assert fallback.calls == 2
    assert "(5, 64)" in fallback.reason


def expected_of(model):
    with torch.no_grad():
        return model(X)


def test_it_serves_the_model_in_its_own_structure(packed, net):
    runtime, directory = packed
    module, expected = autocompile.load(directory, net()), expected_of(net())
    output = module(X)
    assert type(output) is type(expected)
    torch.testing.assert_close(output.scores, expected.scores, rtol=1e-3, atol=1e-4)
    assert (module.status.runtime, module.status.calls) == (runtime, {runtime: 1})


def test_changed_weights_are_served_compiled_and_never_stale(packed, net):
    runtime, directory = packed
    model = net()
    module = autocompile.load(directory, model)
    module(X)
    with torch.no_grad():
        model.leave.weight.mul_(-1.0)
    torch.testing.assert_close(module(X).scores, expected_of(model).scores, rtol=1e-3, atol=1e-4)
    assert module.status.runtime == "aot"
    assert module.status.calls == ({"aot": 2} if runtime == "aot" else {runtime: 1, "aot": 1})
    assert "leave.weight differs" in module.status.fallbacks[0].reason
    with torch.no_grad():
        model.leave.weight.mul_(-1.0)
    module(X)
    assert module.status.runtime == runtime


def test_a_sample_of_the_weights_may_be_compared_which_is_said(packed, net):
    runtime, directory = packed
    module = autocompile.load(directory, net(), weight_check="sample")
    module(X)
    assert module.status.runtime == runtime
    assert any("a sample of each weight tensor" in note for note in module.status.notes)
    model = net()
    other_state(model)
    other = autocompile.load(directory, model, weight_check="sample")
    torch.testing.assert_close(other(X).scores, expected_of(model).scores, rtol=1e-3, atol=1e-4)
    assert other.status.runtime == "aot"


def other_state(model):
    model.load_state_dict({name: value + 0.1 for name, value in model.state_dict().items()})


def other_data(model):
    model.enter.weight.data = model.enter.weight.data * 0.5


def a_step(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()


def another_parameter(model):
    model.leave.bias = torch.nn.Parameter(torch.ones(8))


def another_layer(model):
    model.leave = torch.nn.Linear(256, 8)


def another_dtype(model):
    model.to(torch.bfloat16).float()


CHANGES = [other_state, other_data, a_step, another_parameter, another_layer, another_dtype]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("when", ["before", "after"])
def test_however_weights_are_changed_no_answer_is_stale(packed, net, change, when):
    _runtime, directory = packed
    model = net()
    if when == "before":
        change(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = autocompile.load(directory, model)
        module(X)
        if when == "after":
            change(model)
        torch.testing.assert_close(module(X).scores, expected_of(model).scores, rtol=1e-3, atol=1e-4)


def elsewhere(code, directory, tmp_path):
    """What a process prints that cannot import the model's module."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(directory), f"{directory}.npy"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_it_stands_alone_without_the_model(packed, net, tmp_path):
    runtime, directory = packed
    found = elsewhere(WITHOUT_THE_MODEL, directory, tmp_path)
    assert found["runtime"] == runtime
    assert found["kind"] == "dict"
    assert not found["transformers"]
    assert found["notes"] == ["net.Scores cannot be imported here: outputs are dicts with its field names"]
    torch.testing.assert_close(torch.tensor(found["scores"]), expected_of(net()).scores, rtol=1e-3, atol=1e-4)


def test_numpy_arrays_are_served_without_torch(packed, net, tmp_path):
    runtime, directory = packed
    if runtime == "aot":
        with pytest.raises(autocompile.errors.InvalidRecommendation, match="cannot serve NumPy arrays"):
            autocompile.load(directory, arrays="numpy")
        return
    found = elsewhere(WITHOUT_TORCH, directory, tmp_path)
    assert found["torch"] is False
    assert found["names"] == ["scores", "hidden"]
    assert found["status"][:2] == [runtime, 1]
    torch.testing.assert_close(torch.tensor(found["scores"]), expected_of(net()).scores, rtol=1e-3, atol=1e-4)


def test_a_file_that_was_cut_short_is_refused_in_a_line(packed, net, tmp_path):
    _runtime, directory = packed
    copy = tmp_path / "rec"
    shutil.copytree(directory, copy)
    largest = max((path for path in copy.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    with largest.open("r+b") as stream:
        stream.truncate(largest.stat().st_size - 64)
    for load in (lambda: autocompile.load(copy, net()), lambda: autocompile.load(copy)):
        with pytest.raises(autocompile.errors.InvalidArtifact, match="bytes, not") as refused:
            load()
        assert "\n" not in str(refused.value)


@pytest.fixture
def alone(packed, tmp_path):
    """The artifact without the program that serves changed weights."""
    directory = shutil.copytree(packed[1], tmp_path / "without-standby")
    write_manifest(directory, replace(open_manifest(directory), standby=None))
    return directory


@pytest.mark.parametrize("is_broken", [False, True])
def test_where_nothing_stands_by_changed_weights_are_told_before_all_else(alone, net, is_broken, monkeypatch):
    model = net()
    other_state(model)
    if is_broken:
        monkeypatch.setattr(programs, "ahead", lambda _name: Broken())
    said = "the weights are not those that were packed: "
    with pytest.warns(RuntimeWarning, match=f"{said}.*; it is served eager"):
        module = autocompile.load(alone, model)
    torch.testing.assert_close(module(X), expected_of(model), rtol=0, atol=0)
    assert module.status.absences[0].reason.startswith(said)
    with pytest.raises(autocompile.errors.InvalidRecommendation, match=said):
        autocompile.load(alone, model, on_mismatch="error")
    assert "autocompile-weights" not in {thread.name for thread in threading.enumerate()}


def test_ctrl_c_while_programs_are_loaded_ends_the_load_even_if_the_weights_differ(alone, net, monkeypatch):
    model = net()
    other_state(model)
    monkeypatch.setattr(programs, "ahead", lambda _name: Interrupted())
    with pytest.raises(KeyboardInterrupt):
        autocompile.load(alone, model)
    assert "autocompile-weights" not in {thread.name for thread in threading.enumerate()}


def test_where_eager_is_preferred_for_few_calls_changed_weights_do_not_matter(alone, net):
    manifest, one = open_manifest(alone), Estimate(1.0, 1.0, 1.0)
    served = (
        Served(manifest.serving, "packed", manifest.plan, 5.0, 0.001, one),
        Served(AS_IT_IS, "eager", Plan(), 0.0, 0.01, one),
    )
    write_manifest(alone, replace(manifest, served=served, envelope=(Segment("eager", 1, None),)))
    model = net()
    other_state(model)
    module = autocompile.load(alone, model, calls=10, on_mismatch="error")
    torch.testing.assert_close(module(X), expected_of(model), rtol=0, atol=0)
    assert module.status.runtime == "eager"


class Broken:
    """A runtime whose programs cannot be loaded."""

    def load(self, *_arguments):
        raise NotLoadable("it is broken")


class Interrupted:
    """A runtime that is interrupted by Ctrl-C while it loads a program."""

    def load(self, *_arguments):
        raise KeyboardInterrupt


@pytest.mark.parametrize("standing_by", [True, False])
def test_without_its_library_what_stands_by_serves_or_the_model_and_the_line_says_what_to_install(
    packed, net, standing_by, tmp_path
):
    runtime, directory = packed
    if runtime == "aot":
        pytest.skip("it needs no library beside torch")
    if not standing_by:
        directory = shutil.copytree(directory, tmp_path / "alone")
        write_manifest(directory, replace(open_manifest(directory), standby=None))
    (tmp_path / f"{runtime}.py").write_text(f"raise ImportError('it is broken', name={runtime!r})")
    code = """
import sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[2])
import torch, autocompile
from net import net
module = autocompile.load(sys.argv[1], net())
with torch.no_grad():
    module(torch.zeros(16, 64))
print(module.status.runtime, "|", module.status.absences[0].reason)
"""
    paths = os.pathsep.join([str(tmp_path), str(REPOSITORY)])
    done = subprocess.run(
        [sys.executable, "-c", code, str(directory), str(Path(sys.modules["net"].__file__).parent)],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    served, reason = done.stdout.strip().splitlines()[-1].split(" | ")
    assert served == ("aot" if standing_by else "eager")
    assert "pip install" in reason
