"""A runtime from another distribution, and everything that is built through the catalogue of runtimes."""

import json
import os
import subprocess
import sys

import models
import pytest
import torch
from laboratory import Laboratory, reply_to
from places import REPOSITORY
from servings import AHEAD
from test_tune import AMPLE, LIGHT, command
from verdicts import is_undecided

from autocompile.artifact.integrity import open_manifest
from autocompile.core.errors import InvalidValue
from autocompile.core.job import Limits, ToolchainTask
from autocompile.core.outcome import Measurement
from autocompile.core.plan import Plan
from autocompile.core.serving import Serving
from autocompile.runner.local import LocalRunner
from autocompile.runtime import building
from autocompile.runtime.base import NotPackable
from autocompile.runtime.catalogue import kind
from autocompile.workload.call import Call

# A model that sleeps in eager, but not as an exported program.
WAITING = """
import time
import torch

class Waiting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(16, 4)

    def forward(self, x):
        if not torch.compiler.is_exporting():
            time.sleep(0.02)
        return {"scores": self.linear(x).softmax(-1)}

torch.manual_seed(0)
model, inputs = Waiting().eval(), torch.randn(8, 16)
"""

PRODUCTION = """
import autocompile, json, os, torch
from waiting import inputs, model
fast = autocompile.load("rec", model, on_mismatch=os.environ.get("ON_MISMATCH", "fallback"))
with torch.no_grad():
    torch.testing.assert_close(fast(inputs)["scores"], model(inputs)["scores"])
    fast(torch.randn(3, 5, 16))
print(json.dumps([fast.status.runtime, fast.status.start, fast.status.calls]))
"""


# Change the weights before the program is loaded and while it serves, and print what serves then.
TRAINING = """
import autocompile, copy, json, torch, warnings
from waiting import inputs, model

serves = {}

def check(name, fast, model):
    before = dict(fast.status.calls)
    with torch.no_grad():
        torch.testing.assert_close(fast(inputs)["scores"], model(inputs)["scores"])
    (serves[name],) = (one for one, count in fast.status.calls.items() if count != before.get(one, 0))

def load(model, **options):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fast = autocompile.load("rec", model, **options)
    return fast, [str(one.message) for one in said]

packed = copy.deepcopy(model)
fast, _said = load(model)
check("as packed", fast, model)
with torch.no_grad():
    model.linear.weight.mul_(2)
check("in place", fast, model)
model.load_state_dict(packed.state_dict())
check("as packed again", fast, model)
model.load_state_dict({name: torch.ones_like(one) for name, one in packed.state_dict().items()})
check("load_state_dict", fast, model)
_fast, said = load(model)
check("before loading", _fast, model)
try:
    autocompile.load("rec", model, on_mismatch="error")
except autocompile.errors.InvalidRecommendation as fault:
    said.append(str(fault))
model.load_state_dict(packed.state_dict())
model(inputs)["scores"][:, 0].sum().backward()
torch.optim.SGD(model.parameters(), lr=1.0).step()
check("optimizer", fast, model)
model.load_state_dict(packed.state_dict())
model.double()
inputs = inputs.double()
check("another dtype", fast, model)
print(json.dumps([serves, said, fast.status.fallbacks[0].reason]))
"""


def production(directory, environment, code=PRODUCTION):
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=directory, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture
def path():
    """Where the distribution is found."""
    return os.pathsep.join([str(REPOSITORY / "tests" / "distribution"), os.environ.get("PYTHONPATH", "")])


def test_a_runtime_of_another_distribution_is_searched_and_reported(tmp_path, path):
    around = {**os.environ, "PYTHONPATH": path}
    (tmp_path / "waiting.py").write_text(WAITING)
    light = LIGHT.replace("runtime = ['inductor']", "runtime = ['exported']").split("[[seeds]]")[0]
    (tmp_path / "light.toml").write_text(light)
    tuned = command(
        "tune", "waiting.py", "--budget", AMPLE, "--strategy", "light.toml", "--json", cwd=tmp_path, env=around
    )
    assert tuned.returncode == 0, tuned.stderr
    document = json.loads(tuned.stdout)
    (tried,) = (trial for trial in document["trials"] if trial["plan"]["runtime"] == "exported")
    assert tried["label"] == "exported"
    assert tried["failure"] is None
    assert tried["error"] <= tried["error_limit"]
    if document["winner"]["origin"] == "baseline":  # noise alone may keep it
        assert is_undecided(document["reason"])
        return
    assert "torch.export.export" in document["snippet"]
    shown = command("show", "rec", cwd=tmp_path, env=around)
    assert "exported: a compiled program" in shown.stdout


def test_a_runtime_of_another_distribution_is_verified_packed_and_loaded(tmp_path, path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.syspath_prepend(str(REPOSITORY / "tests" / "distribution"))
    (tmp_path / "waiting.py").write_text(WAITING)
    monkeypatch.syspath_prepend(str(tmp_path))
    import waiting

    with LocalRunner(tmp_path / "jobs", tmp_path / "toolchain") as own:
        laboratory = Laboratory(own, tmp_path)
        laboratory.prepare(waiting.model, waiting.inputs)
        tried = laboratory.trial(Plan(runtime="exported"))
        assert isinstance(tried, Measurement)
        assert tried.accuracy.error <= tried.accuracy.limit
        # It compiles while it is built.
        assert tried.startup.compile_s > 0.5 * tried.phases_s["compile"] > tried.startup.build_s
        packed = laboratory.pack(Plan(runtime="exported"), Serving("exported", "load"))
        packed.rename(tmp_path / "rec")
    assert open_manifest(tmp_path / "rec").requirements.library == "1.0"
    ran = production(tmp_path, dict(os.environ))
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == ["exported", "load", {"exported": 1, "eager": 1}]
    trained = production(tmp_path, dict(os.environ), TRAINING)
    assert trained.returncode == 0, trained.stderr
    serves, said, reason = json.loads(trained.stdout)
    assert {name for name, runtime in serves.items() if runtime == "exported"} == {"as packed", "as packed again"}
    assert set(serves.values()) == {"exported", "eager"}
    differ = "the weights are not those that were packed: linear.weight differs"
    assert said[0] == f"{differ}, and 1 more; it is served eager; tune it again"
    assert said[1] == f"rec: {differ}, and 1 more; tune it again here"
    assert reason == differ
    monkeypatch.setenv("PYTHONPATH", path.split(os.pathsep, 1)[1])
    without = production(tmp_path, dict(os.environ))
    assert without.returncode == 0, without.stderr
    assert json.loads(without.stdout) == ["eager", "none", {"eager": 2}]
    assert "there is no runtime 'exported'" in without.stderr
    assert "install it, or use eager, inductor, aot, openvino, onnxruntime; it is served eager" in without.stderr
    monkeypatch.setenv("ON_MISMATCH", "error")
    refused = production(tmp_path, dict(os.environ))
    assert "InvalidRecommendation: rec: runtime: there is no runtime 'exported'" in refused.stderr


class Branching(torch.nn.Module):
    """Cannot be exported for two elements."""

    def forward(self, x):
        return -x if len(x) == 2 and x.sum() < 0 else x * 1


def test_what_compiles_while_it_is_built_is_built_in_production_for_the_calls_that_come(monkeypatch):
    monkeypatch.syspath_prepend(str(REPOSITORY / "tests" / "distribution"))
    from exported_runtime.kind import KIND

    monkeypatch.setattr(building, "kind", lambda name: KIND if name == KIND.name else kind(name))
    monkeypatch.setattr(building, "kind_of", lambda plan: building.kind(plan.runtime))
    torch.manual_seed(0)
    model = models.Stack().eval()
    built = building.build(Call(model), Plan(runtime="exported"))
    for shape in ((4, 32), (2, 32), (4, 32)):
        x = torch.randn(*shape)
        torch.testing.assert_close(built(x), Call(model)(x))
    assert len(built.model._built) == 2
    assert KIND.unpacked == Serving("exported", "compile")
    branching = building.build(Call(Branching()), Plan(runtime="exported"))
    with pytest.raises(NotPackable):
        branching(torch.ones(2))
    assert torch.equal(branching(torch.ones(1)), torch.ones(1))
    assert torch.equal(branching(-torch.ones(2)), torch.ones(2)), "what cannot be built later is served eager"


def test_a_runtime_that_is_not_there_is_named():
    with pytest.raises(InvalidValue, match="there is no runtime 'nonesuch'"):
        kind("nonesuch")


def test_a_program_compiled_ahead_is_tried_like_every_other_candidate(laboratory):
    laboratory.prepare(models.Stack().eval(), torch.randn(4, 32))
    found = laboratory.trial(Plan(runtime=AHEAD.runtime))
    assert isinstance(found, Measurement)
    assert found.accuracy.error <= found.accuracy.limit
    assert found.counters.recompiles == 0


@pytest.fixture
def lacking(tmp_path, monkeypatch):
    """A distribution on the path whose runtime needs a library that is not there."""
    plugged = tmp_path / "plugged"
    (plugged / "lacking-1.0.dist-info").mkdir(parents=True)
    (plugged / "lacking-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: lacking\nVersion: 1.0\n")
    (plugged / "lacking-1.0.dist-info" / "entry_points.txt").write_text("[autocompile.runtimes]\nl = lacking:KIND\n")
    (plugged / "lacking.py").write_text(
        "from autocompile.runtime.kind import Kind\n"
        "class Lacking(Kind):\n"
        "    name, meaning, implementation = 'lacking', 'of a test', 'lacking_runtime'\n"
        "KIND = Lacking()\n"
    )
    (plugged / "lacking_runtime.py").write_text("import a_library_that_is_not_there\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(plugged), os.environ.get("PYTHONPATH", "")]))


def test_a_runtime_whose_library_is_missing_ends_no_other(lacking, tmp_path):
    with LocalRunner(tmp_path / "jobs", tmp_path / "toolchain") as own:
        laboratory = Laboratory(own, tmp_path)
        laboratory.prepare(models.Stack().eval(), torch.randn(4, 32))
        assert isinstance(laboratory.trial(Plan()), Measurement)
        found = laboratory.trial(Plan(runtime="lacking"))
        limits = Limits(120.0)
        toolchain = reply_to(own, ToolchainTask("cpu"), limits, cache="toolchain")
    assert (found.kind, found.stage) == ("unsupported", "build")
    assert "runtime lacking: a_library_that_is_not_there cannot be imported" in found.message
    assert toolchain.missing == {"lacking": found.message}


def test_importing_a_runtime_is_charged_to_it_and_what_is_shared_to_none(path):
    code = "from autocompile.runtime.preparing import IMPORT_S; import json; print(json.dumps(IMPORT_S))"
    around = {**os.environ, "PYTHONPATH": path}
    ran = subprocess.run([sys.executable, "-c", code], env=around, capture_output=True, check=True)
    took = json.loads(ran.stdout)
    assert took["eager"] < 0.05
    assert took["inductor"] > 0.1
    assert took["exported"] > 0
