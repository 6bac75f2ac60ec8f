"""Models as files that run without this library: their results, and a one-line reason if an export fails."""

import os
import subprocess
import sys
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from autocompile import api
from autocompile.artifact.exported import RECORD
from autocompile.core.errors import InvalidRecommendation, NotExportable
from autocompile.core.export import Export, Interface
from autocompile.core.goal import Goal
from autocompile.core.job import Acceptance, Exported, ExportTask
from autocompile.core.outcome import Failure
from autocompile.core.plan import Plan
from autocompile.core.serde import from_json, from_plain
from autocompile.core.tolerance import published_tolerance
from autocompile.recommendation import Recommendation
from autocompile.runtime.catalogue import format_named, formats
from autocompile.search.run import Settings
from autocompile.search.strategy import load_strategy
from autocompile.trial.check.reference import make_reference
from autocompile.trial.pack.exporting import export
from autocompile.trial.phases import Phases
from autocompile.workload.call import Call
from autocompile.workload.samples import as_samples
from autocompile.workload.spool import spool

pytestmark = pytest.mark.filterwarnings("ignore")
SAMPLES = [(torch.randint(0, 50, (n, 7)), {"bias": torch.randn(n, 16)}) for n in (3, 6)]
# The situation of another user: no autocompile, and no state of this process.
ELSEWHERE = """
import runpy, sys
import numpy as np
sys.modules["autocompile"] = None
scope = runpy.run_path("example.py")
given = [np.load(f"{name}.npy") for name in scope["INPUTS"]]
if "torch" in scope:
    given = [scope["torch"].from_numpy(one) for one in given]
for name, made in zip(scope["OUTPUTS"], scope["run"](*given), strict=True):
    np.save(f"{name}.npy", np.asarray(made))
"""


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, 16), nn.Linear(16, 5)

    def forward(self, ids, batch, spare=None):
        hidden = torch.relu(self.embedding(ids).mean(1) + batch["bias"])
        return {"logits": self.head(hidden), "hidden": (hidden, None), "width": 16}


class Applied(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.weight, self.function = nn.Parameter(torch.ones(4)), function

    def forward(self, x):
        return self.function(x * self.weight)


def needs(name):
    form = format_named(name)[1]
    return pytest.param(name, marks=pytest.mark.skipif(bool(form.missing()), reason=f"no {form.missing()}"))


FORMATS = [needs(name) for name in formats()]
# Without the formats that need a compiler.
QUICK = [needs(name) for name in formats() if name != "pt2"]


@pytest.fixture
def recommended(tmp_path):
    """A recommendation as `optimize` returns it, of a run that was never made."""

    def recommend(model, inputs):
        samples = tmp_path / "samples.pt"
        workload = spool(model, inputs, tmp_path / "spooled", keep=samples)
        settings = Settings(Goal(), load_strategy("quick"), 0, None)
        exporter = api._exporter(model, samples, settings, None)
        document = SimpleNamespace(workload=workload, winner=SimpleNamespace(plan=Plan(), label="eager"), trials=())
        return Recommendation(document, model, tmp_path / "artifact", None, exporter)

    return recommend


def exported(tmp_path, model, inputs, name, **settings):
    """What the child answers, in this process."""
    workload = spool(model, inputs, tmp_path / "spooled")
    reference = tmp_path / "reference.pt"
    make_reference(Call(model), as_samples(inputs), variants=1, seed=0).save(reference, with_outputs=False)
    plan = Plan(runtime=format_named(name)[0].name, **settings)
    acceptance = Acceptance(published_tolerance(plan.precision))
    return export(ExportTask(workload, plan, name, str(reference), acceptance, str(tmp_path / "made")), Phases())


def run_elsewhere(directory, *arguments):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        [sys.executable, *arguments], cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@torch.no_grad()
@pytest.mark.parametrize("name", FORMATS)
def test_an_exported_file_computes_what_the_model_computes_without_this_library(name, recommended, tmp_path):
    torch.manual_seed(0)
    model = Net().eval()
    rec, target = recommended(model, SAMPLES), tmp_path / "out"
    found = rec.export(name, target, progress=False)
    assert {path.name for path in target.iterdir()} == set(found.files)
    assert from_json((target / RECORD).read_bytes(), Export) == found
    assert found.verified.reference == "float64"
    assert found.verified.error <= found.verified.limit
    assert found.verified.calls >= len(SAMPLES)
    assert "Verified against the float64 reference" in (target / "README.md").read_text()
    printed = run_elsewhere(target, "-I", "example.py").splitlines()
    assert [line.split()[0] for line in printed] == [output.name for output in found.interface.outputs]
    # A size that no sample has.
    ids, batch = torch.randint(0, 50, (4, 7)), {"bias": torch.randn(4, 16)}
    given = {"ids": ids, "batch['bias']": batch["bias"]}
    for one in found.interface.inputs:
        np.save(target / f"{one.name}.npy", given[one.argument].numpy())
    run_elsewhere(target, "-c", ELSEWHERE)
    output = model(ids, batch)
    expected = {"output['logits']": output["logits"], "output['hidden'][0]": output["hidden"][0]}
    assert {place for one in found.interface.outputs for place in one.places} == set(expected)
    for one in found.interface.outputs:
        made = torch.from_numpy(np.load(target / f"{one.name}.npy"))
        torch.testing.assert_close(made, expected[one.places[0]], rtol=1e-4, atol=1e-5)
    assert found.interface.literals == {"output['hidden'][1]": "None", "output['width']": "16"}
    model.head = nn.Linear(16, 6)
    with pytest.raises(InvalidRecommendation, match="is for another workload"):
        rec.export(name, tmp_path / "again", progress=False)


@pytest.mark.parametrize("name", QUICK)
def test_arguments_without_effect_and_outputs_that_are_one_are_told(name, tmp_path):
    def twice(x, spare, *, scale):
        doubled = x * scale
        return doubled, x, doubled

    inputs = [{"x": torch.randn(3, 4), "spare": torch.randn(2), "scale": 2.0}]
    reply = exported(tmp_path, twice, inputs, name)
    assert isinstance(reply, Exported), reply
    interface = from_plain(reply.program.own, Interface)
    assert interface.fixed == {"scale": "2.0"}
    assert {one.argument for one in interface.inputs} | set(interface.unused) == {"x", "spare"}
    assert len(interface.gives) == 3
    places = [place for output in interface.outputs for place in output.places]
    assert sorted(places) == ["output[0]", "output[1]", "output[2]"]


@pytest.mark.parametrize("name", QUICK)
def test_a_file_that_computes_something_else_is_refused(name, tmp_path, monkeypatch):
    written = import_module(format_named(name)[1].implementation)
    wrong = "    return [one * 1.01 for one in right(*inputs)]\n\n\ndef right(*inputs):\n"
    monkeypatch.setattr(written, "_RUN", wrong + written._RUN.strip("\n"))
    reply = exported(tmp_path, Applied(torch.sin).eval(), torch.randn(3, 4), name)
    assert isinstance(reply, Failure)
    assert "is wrong: output is off by" in reply.message


def branching(x):
    return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (branching, "depends on the values of a tensor"),
        (lambda x: torch.linalg.eigvals(x[:, :3]).real, "aten.linalg_eig"),
        (lambda x: x.bfloat16(), "bfloat16, which NumPy does not have"),
    ],
    ids=["a branch", "an operator", "a dtype"],
)
@pytest.mark.parametrize("name", QUICK)
def test_what_a_format_cannot_have_is_told_in_one_line(name, function, said, tmp_path):
    reply = exported(tmp_path, Applied(function).eval(), torch.randn(3, 4), name)
    assert isinstance(reply, Failure)
    assert reply.kind == "unsupported", reply
    assert said in reply.message
    assert len(reply.message.splitlines()) == 1


@pytest.mark.parametrize("name", [needs("onnx")])
def test_a_graph_names_what_varies_and_tells_nothing_of_where_it_was_written(name, tmp_path):
    import onnx

    model = nn.Sequential(nn.Linear(4, 6), nn.Flatten(0)).eval()
    reply = exported(tmp_path, model, [torch.randn(3, 4), torch.randn(5, 4)], name)
    assert isinstance(reply, Exported), reply
    graph = onnx.load(tmp_path / "made" / "model.onnx").graph
    (axis,) = reply.program.axes
    assert [size.dim_param for size in graph.input[0].type.tensor_type.shape.dim] == [axis.name, ""]
    assert axis.name in graph.output[0].type.tensor_type.shape.dim[0].dim_param
    assert str(tmp_path.parent).encode() not in (tmp_path / "made" / "model.onnx").read_bytes()
    assert b"test_export.py" not in (tmp_path / "made" / "model.onnx").read_bytes()


def test_calls_of_several_forms_have_no_one_file(tmp_path):
    name = "pt2"  # refused before anything is compiled
    reply = exported(tmp_path, torch.sin, [torch.randn(3), torch.randn(3, 4)], name)
    assert isinstance(reply, Failure)
    assert "it is called in 2 different forms" in reply.message


def test_a_refusal_leaves_nothing_behind(recommended, tmp_path):
    rec = recommended(Applied(branching).eval(), torch.randn(3, 4))
    with pytest.raises(NotExportable, match=r"cannot be exported as pt2: .*nothing was written"):
        rec.export("pt2", tmp_path / "out", progress=False)
    assert not (tmp_path / "out").exists()
