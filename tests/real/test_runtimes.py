"""A runtime that another distribution brings, and what is built through the runtimes that there are."""

import json
import os
import subprocess
import sys

import pytest
import torch
from places import REPOSITORY
from servings import AHEAD
from test_tune import AMPLE, LIGHT, command

from autocompile.core.errors import InvalidValue
from autocompile.core.plan import Plan
from autocompile.runtime.base import NotPackable
from autocompile.runtime.building import build
from autocompile.runtime.catalogue import kind
from autocompile.workload.samples import Sample

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


def test_a_runtime_of_another_distribution_is_searched_verified_packed_loaded_and_reported(tmp_path):
    path = os.pathsep.join([str(REPOSITORY / "tests" / "distribution"), os.environ.get("PYTHONPATH", "")])
    around = {**os.environ, "PYTHONPATH": path}
    (tmp_path / "waiting.py").write_text(WAITING)
    (tmp_path / "light.toml").write_text(LIGHT.replace("runtime = []", "runtime = ['exported']").split("[[seeds]]")[0])
    arguments = ["waiting.py", "--budget", AMPLE, "--strategy", "light.toml", "--json"]
    tuned = command("tune", *arguments, cwd=tmp_path, env=around)
    assert tuned.returncode == 0, tuned.stderr
    document = json.loads(tuned.stdout)
    winner, artifact = document["winner"], document["artifact"]
    assert winner["plan"] == json.loads(json.dumps({**winner["plan"], "runtime": "exported", "settings": {}}))
    assert winner["error"] <= winner["error_limit"]
    assert (artifact["runtime"], artifact["start"], artifact["processes"]) == ("exported", "load", 3)
    assert "torch.export.export" in document["snippet"]
    shown = command("show", "rec", cwd=tmp_path, env=around)
    assert "exported: a compiled program" in shown.stdout
    ran = production(tmp_path, around)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == ["exported", "load", {"exported": 1, "eager": 1}]
    without = production(tmp_path, dict(os.environ))
    assert "there is no runtime 'exported'" in without.stderr
    assert "install it; here are eager, inductor, aot" in without.stderr


def test_a_runtime_that_is_not_there_is_named():
    with pytest.raises(InvalidValue, match="there is no runtime 'nonesuch'"):
        kind("nonesuch")


def test_a_program_compiled_ahead_is_built_like_every_other_candidate():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()).eval()
    call = torch.randn(4, 8)
    built = build(model, Plan(runtime=AHEAD.runtime), "cpu", [Sample((call,), {})])
    with torch.no_grad():
        torch.testing.assert_close(built(call), model(call))
        model[0].weight.mul_(2)
        torch.testing.assert_close(built(call), model(call))
    with pytest.raises(NotPackable, match="its own guards refuse it"):
        built(torch.randn(4, 2, 8))
    with pytest.raises(NotPackable, match="without a call"):
        build(model, Plan(runtime=AHEAD.runtime), "cpu")
