"""Profiles of models with known properties, and of inputs that cannot be profiled."""

import inspect
import itertools
import json
import subprocess
import sys

import models
import profiled
import psutil
import pytest
import torch
from laboratory import reply_to
from torch import nn
from torch.utils.data import DataLoader

import autocompile
from autocompile.core.errors import InvalidWorkload, UsageError
from autocompile.core.job import Limits, ProfileTask, Timing
from autocompile.core.profile import Profile
from autocompile.trial.clock.devices import DEVICES, Device
from autocompile.trial.clock.timing import subject
from autocompile.trial.profile.ceilings import measure_ceilings
from autocompile.workload.call import Call
from autocompile.workload.capture.stream import take
from autocompile.workload.samples import MAX_SAMPLES, Sample
from autocompile.workload.spool import spool

_ATTEMPTS = 2
TIMING = Timing(precision=0.2, limit_s=0.5)


@pytest.fixture
def examine(runner, tmp_path):
    def examined(model, inputs, *, full=True, **options):
        workload = spool(model, inputs, tmp_path / "workload", **options)
        task = ProfileTask(workload, str(tmp_path / "reference.pt"), TIMING, 0, depth="full" if full else "brief")
        reply = reply_to(runner, task, Limits(120.0), cache="profile")
        assert isinstance(reply, Profile), reply
        return reply

    return examined


@pytest.fixture
def no_process_left():
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    yield
    assert {process.pid for process in psutil.Process().children(recursive=True)} <= before


@pytest.mark.parametrize(
    ("model", "inputs", "bound", "said", "full"),
    [
        (profiled.TinyOperators(), torch.ones(8), "overhead", "starting 200 operators a call", True),
        (nn.Linear(1024, 1024), torch.ones(1024, 1024), "compute", "GFLOP a call run at", False),
        (profiled.LargeOperators(), torch.ones(1 << 23), "memory", "of what a large copy reaches here", False),
    ],
    ids=["overhead", "compute", "memory"],
)
def test_what_bounds_a_model_is_told_with_its_evidence(examine, model, inputs, bound, said, full):
    # Another process may use the memory bandwidth for a while, which then shows in the profile.
    attempts = (examine(model.eval(), inputs, full=full) for _ in range(_ATTEMPTS))
    found = next((one for one in attempts if one.bound == bound), None) or examine(model.eval(), inputs, full=full)
    assert found.bound == bound, found.evidence
    assert said in found.evidence
    assert found.ceilings.flops_per_s > 1e9
    assert found.ceilings.bytes_per_s > 1e8
    assert found.kernels_per_call in (1, 16, 200)


def test_the_work_of_a_call_is_counted(examine):
    found = examine(nn.Linear(1024, 512, bias=False).eval(), torch.ones(256, 1024))
    assert found.flops == 2 * 256 * 1024 * 512
    assert found.bytes == 4 * (256 * 1024 + 1024 * 512 + 256 * 512)
    assert found.matrix_kernels == 1


def test_a_slow_loader_bounds_the_model_and_what_is_better_is_told(examine, no_process_left):
    loader = DataLoader(profiled.Slow(), batch_size=4)
    found = examine(nn.Linear(8, 8).eval(), loader, tries_loaders=True)
    assert found.bound == "input", found.evidence
    assert "is spent waiting for it" in found.evidence
    assert found.input_share > 0.9
    assert found.pipeline.own.setting.workers == 0
    assert found.pipeline.own.batch_ms >= 20
    assert all(timing.setting != found.pipeline.own.setting for timing in found.pipeline.tried)
    assert found.pipeline.tried
    assert any("only the first of the 2 elements of every batch went to the model" in note for note in found.notes)
    assert "4 of them were kept, as all have the same shapes" in found.notes
    assert loader._iterator is None, "the user's own loader is left as it was"


def test_time_and_memory_by_submodule(examine):
    found = examine(models.Stack(width=256).eval(), torch.randn(512, 256))
    assert sum(one.share for one in found.submodules) == pytest.approx(1, abs=0.01)
    assert all(found.submodules[i].share >= one.share for i, one in enumerate(found.submodules[1:]))
    linear = next(one for one in found.submodules if one.class_name == "Linear")
    assert linear.calls == 1
    assert linear.parameter_bytes > 0
    assert linear.allocated_bytes > 0
    assert found.blocks[0].class_name == "Block"


def lines_that_break():
    lines, first = inspect.getsourcelines(profiled.Breaking)
    return {line.split("# breaks: ")[1].strip(): n for n, line in enumerate(lines, first) if "# breaks: " in line}


def test_graph_breaks_are_found_at_their_lines_and_their_advice_removes_them(examine):
    torch.manual_seed(0)
    found = examine(profiled.Breaking().eval(), torch.ones(4, 8))
    assert {one.file for one in found.graph_breaks} == {profiled.__file__}
    advice = {one.line: one.advice for one in found.graph_breaks}
    lines = lines_that_break()
    assert sorted(advice) == sorted(lines.values()), found.graph_breaks
    assert "torch.compiler.is_compiling()" in advice[lines["print"]]
    assert "torch.where" in advice[lines["branch"]]
    assert "outside of the model" in advice[lines["call"]]
    assert "torch.where(mask, x, 0)" in advice[lines["shape"]]
    assert found.exportable is False
    assert "profiled.py" in found.export_failure
    mended = examine(profiled.Mended().eval(), torch.ones(4, 8))
    assert mended.graph_breaks == ()
    assert mended.graph_count == 1
    assert mended.exportable is True


def test_samples_of_several_sizes_show_what_is_compiled_again(examine):
    found = examine(nn.Linear(8, 8).eval(), [torch.ones(n, 8) for n in (2, 3)])
    assert len(found.recompiles) == 1
    assert "has another size in axis 0: 2, then 3" in found.recompiles[0].reason
    assert "mark_dynamic" in found.recompiles[0].advice


SCRIPT = """
import itertools
import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).eval()
inputs = (torch.ones(4, 64) for _ in itertools.count())
"""


def test_the_command_line_and_endless_inputs(tmp_path, no_process_left):
    script = tmp_path / "endless.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "autocompile", "profile", str(script), "--json", "--quiet"]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=200, check=False)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert {"bound", "evidence", "busy_share", "graph_breaks", "blocks", "exportable"} <= set(found)
    assert "only the first 64 batches of the generator were taken as samples" in found["notes"]
    assert found["exportable"] is True
    assert found["graph_breaks"] == []
    assert found["workload"]["device"] == "cpu"


def test_a_profile_in_memory_prints_itself(no_process_left):
    found = autocompile.profile(models.Stack().eval(), torch.randn(4, 32), progress=False)
    text = str(found)
    assert f"bound: {found.bound}: {found.evidence}" in text
    assert "time by submodule" in text
    assert "3 repeated Block blocks (layers.0 to layers.2)" in text
    assert "exports as one program" in text


def test_iterators_are_bounded_and_samples_are_as_the_model_takes_them():
    taken = take(({"x": torch.ones(2, 8), "label": n} for n in itertools.count()), models.Stack(), tries_loaders=False)
    assert len(taken.calls) == MAX_SAMPLES
    assert taken.calls[0].keys() == {"x"}
    assert any("label" in note for note in taken.notes)
    short = take(iter([torch.ones(2)]), torch.sin, tries_loaders=False)
    assert short.notes == ()


def two(x, y, z=None):
    return x + y


X = torch.ones(2)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (
            [(X, X), X],
            r"inputs\[1\]: has 1 positional .* where inputs\[0\] has 2 .* \(missing a required argument: 'y'\); give",
        ),
        (
            [{"x": X}, {"x": X, "y": X}],
            r"inputs\[0\]: has 0 positional arguments and x where inputs\[1\] has 0 .* and x, y",
        ),
    ],
)
def test_samples_of_incompatible_structure_are_named(tmp_path, inputs, said):
    with pytest.raises(InvalidWorkload, match=said):
        spool(two, inputs, tmp_path)


def test_samples_may_leave_out_what_is_optional(tmp_path):
    assert len(spool(two, [(X, X), (X, X, X), {"y": X, "x": X}], tmp_path).signatures) == 3


@pytest.mark.parametrize(
    ("loader", "said"),
    [
        (
            DataLoader(profiled.Dying(), num_workers=1),
            r"inputs: a worker process of the DataLoader died \(.*\); iterate",
        ),
        (DataLoader(profiled.Raising(), num_workers=1), r"raised KeyError: 'row 3 is missing' \(.*profiled.py:\d+ in "),
        (DataLoader(profiled.Raising()), r"raised KeyError: 'row 3 is missing' \(profiled.py:\d+ in __getitem__\)"),
        (iter([]), "inputs: the list_iterator gives no batch"),
    ],
    ids=["dies", "raises in a worker", "raises", "empty"],
)
def test_loaders_that_fail_are_told_in_one_line(tmp_path, loader, said, no_process_left):
    with pytest.raises(UsageError, match=said) as raised:
        spool(nn.Linear(8, 8), loader, tmp_path)
    assert len(str(raised.value).splitlines()) == 1


def test_a_model_that_replaces_its_children_is_refused(no_process_left):
    with pytest.raises(
        UsageError, match=r"model\.inner: is another module after every call.*build the model's children"
    ):
        autocompile.profile(profiled.Replacing(), torch.ones(2, 8), progress=False)


def test_a_new_type_of_device_needs_one_row(monkeypatch):
    monkeypatch.setitem(DEVICES, "meta", Device(lambda: None, matrix=8, copied_bytes=1 << 10))
    ceilings = measure_ceilings("meta", "float32")
    assert min(ceilings.flops_per_s, ceilings.bytes_per_s, ceilings.dispatch_us) > 0
    model, samples = nn.Linear(8, 8, device="meta"), [Sample((torch.ones(2, 8, device="meta"),), {})]
    assert subject(Call(model), samples, "meta", 1).one_pass() > 0
