"""A runtime that another distribution brings, and what is built through the runtimes that there are."""

import json
import os
import subprocess
import sys

import models
import pytest
import torch
from laboratory import Laboratory
from places import REPOSITORY
from servings import AHEAD
from test_tune import AMPLE, LIGHT, command

from autocompile.core.errors import InvalidValue
from autocompile.core.outcome import Measurement
from autocompile.core.plan import Plan
from autocompile.core.serving import Serving
from autocompile.runner.local import LocalRunner
from autocompile.runtime import building
from autocompile.runtime.base import NotPackable
from autocompile.runtime.catalogue import kind
from autocompile.workload.call import Call

# Eager waits, which no program does that was exported.
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
import autocompile, json, torch
from waiting import inputs, model
fast = autocompile.load("rec", model)
with torch.no_grad():
    torch.testing.assert_close(fast(inputs)["scores"], model(inputs)["scores"])
    fast(torch.randn(3, 5, 16))
print(json.dumps([fast.status.runtime, fast.status.start, fast.status.calls]))
"""


def production(directory, environment):
    return subprocess.run(
        [sys.executable, "-c", PRODUCTION],
        cwd=directory, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture
def path():
    """Where the distribution is found."""
    return os.pathsep.join([str(REPOSITORY / "tests" / "distribution"), os.environ.get("PYTHONPATH", "")])


def test_a_runtime_of_another_distribution_is_searched_and_reported(tmp_path, path):
    around = {**os.environ, "PYTHONPATH": path}
    (tmp_path / "waiting.py").write_text(WAITING)
    (tmp_path / "light.toml").write_text(LIGHT.replace("runtime = []", "runtime = ['exported']").split("[[seeds]]")[0])
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
        assert "others used this host" in document["reason"] or "too noisy for a verdict" in document["reason"]
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
    ran = production(tmp_path, dict(os.environ))
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == ["exported", "load", {"exported": 1, "eager": 1}]
    monkeypatch.setenv("PYTHONPATH", path.split(os.pathsep, 1)[1])
    without = production(tmp_path, dict(os.environ))
    assert "there is no runtime 'exported'" in without.stderr
    assert "install it; here are eager, inductor, aot" in without.stderr


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
