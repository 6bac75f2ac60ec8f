"""A model is recognized as the same model on every way in, and each difference is named."""

import copy
import importlib.util
import json
import os
import runpy
import subprocess
import sys
import textwrap
from operator import attrgetter
from types import SimpleNamespace

import cloudpickle
import nbformat
import numpy as np
import pytest
import torch
from nbclient import NotebookClient
from torch import nn

import autocompile
from autocompile.core.identity import differences, summary
from autocompile.core.outcome import Failure
from autocompile.runtime.inductor.settings import compiled
from autocompile.trial.pack.reads import Reads
from autocompile.workload.capture.script import workload_from_script
from autocompile.workload.identity.facts import identity_like, identity_of

SOURCE = """
import torch
from torch import nn
import shared

SCALE = 2.0

def helper(x):
    return x * SCALE

class Block(nn.Module):
    OFFSET = 1

    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.factor = 3.0

    def forward(self, x, bias=0.5):
        if x.dim() in {2, 3, 4} or str(x.dtype) in {"a", "b", "c"}:
            x = x + bias
        return shared.shifted(helper(self.layer(x))) * self.factor + self.OFFSET

class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x

    def describe(self):
        return "a net"

torch.manual_seed(0)
model, inputs = Net(), torch.randn(4, 16)
"""
SHARED = "def shifted(x):\n    return x - 1\n"
LOAD = """
import json
import torch
import autocompile
{bring}
torch.manual_seed(1)
x = torch.randn(4, 16)
module = autocompile.load({artifact!r}, model.eval())
with torch.no_grad():
    error = (module(x) - model(x)).abs().max().item()
print(json.dumps([module.status.runtime, error]))
"""


def place(directory, source=SOURCE, shared=SHARED):
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "wl.py").write_text(source)
    (directory / "shared.py").write_text(shared)
    return directory / "wl.py"


def imported(path, name):
    """The model of a file, imported under a name; what it imports in turn is read again."""
    sys.modules.pop("shared", None)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module.model


def test_however_a_file_is_run_its_model_is_the_same(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    script = place(tmp_path)
    as_module = identity_of(imported(script, "wl"))
    assert identity_of(imported(place(tmp_path / "elsewhere"), "package.wl")) == as_module
    assert identity_of(runpy.run_path(str(script), run_name="__main__")["model"]) == as_module
    assert identity_of(workload_from_script(script)[0]) == as_module
    space = {"__name__": "__main__"}
    exec(SOURCE, space)  # as a cell of a notebook is
    assert identity_of(space["model"]) == as_module
    travelled = cloudpickle.loads(cloudpickle.dumps(space["model"]))
    assert identity_like(travelled, as_module) == as_module


def test_an_installed_package_is_the_package_as_it_was_developed(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    developed = identity_of(imported(place(tmp_path), "wl"))
    installed = imported(place(tmp_path / "site-packages"), "installed")
    assert not differences(developed, identity_like(installed, developed))
    changed = SOURCE.replace("x * SCALE", "x / SCALE")
    installed = imported(place(tmp_path / "other" / "site-packages", changed), "installed")
    assert summary(differences(developed, identity_like(installed, developed))) == "the code of helper has changed"


def test_the_order_of_sets_is_none_of_the_model(tmp_path):
    place(tmp_path)
    program = (
        "import wl\nfrom autocompile.workload.identity.facts import identity_of\nprint(identity_of(wl.model).digest)"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("return x * SCALE", "return x / SCALE", "the code of helper has changed"),
        ("* self.factor +", "* self.factor -", "the code of Block.forward has changed"),
        ("SCALE = 2.0", "SCALE = 3.0", "`SCALE` is 3.0, was 2.0"),
        ("OFFSET = 1", "OFFSET = 2", "`Block.OFFSET` is 2, was 1"),
        ("bias=0.5", "bias=0.25", "`Block.forward(bias)` is 0.25, was 0.5"),
        (
            "self.factor = 3.0",
            "self.factor = 4.0",
            "attribute `blocks.0.factor` is 4.0, was 3.0 (and 1 more",
        ),
        ("width=16", "width=8", "blocks.0.layer.weight is 8x8, was 16x16 (and 3 more differences)"),
        ("nn.Linear(width, width)", "nn.Identity()", "blocks.0.layer is of class Identity, was Linear"),
        ('"a net"', '"the net"', ""),
    ],
)
def test_what_was_changed_in_a_file_is_named(tmp_path, monkeypatch, old, new, said):
    assert old in SOURCE
    monkeypatch.syspath_prepend(str(tmp_path))
    then = identity_of(imported(place(tmp_path), "wl"))
    now = identity_like(imported(place(tmp_path / "new", SOURCE.replace(old, new)), "wl"), then)
    assert summary(differences(then, now)).startswith(said)
    assert bool(differences(then, now)) is bool(said)


def test_a_helper_in_another_module_of_ones_own_is_followed(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    then = identity_of(imported(place(tmp_path), "wl"))
    other = imported(place(tmp_path / "new", shared=SHARED.replace("- 1", "+ 1")), "wl")
    assert summary(differences(then, identity_like(other, then))) == "the code of shifted has changed"


class Counting(nn.Module):
    """Counts its calls in a plain attribute, has one that no call reads, and asks for its mode."""

    def __init__(self, rate=0.0):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.dropout = nn.Dropout(rate)
        self.calls = 0
        self.epoch = 0

    def forward(self, x):
        self.calls += 1
        return self.dropout(self.layer(x))


def test_what_a_call_does_not_depend_on_is_none_of_the_model():
    model = Counting()
    then = identity_of(model)
    model.calls, model.epoch = 17, 3
    model.eval()
    assert identity_of(model) == then
    assert identity_of(Counting(0.5)) != then


def test_the_mode_matters_where_something_drops_or_normalizes():
    for model in (Counting(0.5), nn.Sequential(nn.BatchNorm1d(4))):
        then = identity_of(model)
        model.eval()
        assert "training` is False, was True" in summary(differences(then, identity_like(model, then)))


class Reading(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.scale, self.unread, self.sizes = 2.0, 1, [1, 2]
        self.half, self.window = np.float32(0.5), slice(0, 4)
        self.config = SimpleNamespace(power=2, name="net")
        self.settings = Settings()

    def forward(self, x):
        x = (self.layer(x) * self.scale + self.sizes[0])[:, self.window] * float(self.half)
        x = x + self.settings.inner.offset
        return x**self.config.power if self.settings.doubled else x


class Inner:
    def __init__(self):
        self.offset = 1


class Settings:
    def __init__(self):
        self.doubled = True
        self.comment = "nothing"
        self.inner = Inner()


class Delegating(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Reading()
        self.own = 1

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)

    def forward(self, x):
        return self.inner(x) * self.own


def test_what_a_call_reads_is_listened_to_and_all_is_as_it_was():
    model = Reading()
    before, classes = copy.deepcopy(vars(model)), (type(model.config), type(model.settings))
    reads = Reads(model)
    with reads.listening():
        model(torch.ones(2, 4))
    assert {"scale", "sizes", "settings.doubled", "config.power"} <= reads.paths
    assert not {"unread", "settings.comment", "training", "layer.training", "layer.in_features"} & reads.paths
    assert vars(model).keys() == before.keys()
    assert (model.scale, model.unread, model.sizes) == (2.0, 1, [1, 2])
    assert (type(model.config), type(model.settings)) == classes
    assert reads.texts()["sizes"] == "[1, 2]"


class Looking(nn.Module):
    """Looks into its own dictionary, and has another factor where it is compiled."""

    def __init__(self):
        super().__init__()
        self.seen, self.quick = 2, 3

    def forward(self, x):
        return x * vars(self).get("seen", 1) * (self.quick if torch.compiler.is_compiling() else 1)


def test_what_is_read_without_asking_for_it_or_only_when_compiled_counts():
    model = Looking()
    reads = Reads(model)
    reads.note(lambda: model(torch.ones(2)))
    assert {"seen", "quick"} <= reads.paths
    assert (model.seen, model.quick, torch.compiler.is_compiling()) == (2, 3, False)


class Stateful(nn.Module):
    made = 0

    def forward(self, x):
        type(self).made += 1
        return x + 1


def test_state_that_calls_write_is_none_of_the_model():
    model, total = Stateful(), 0

    def counting(x):
        nonlocal total
        total += 1
        return model(x)

    then, of_function = identity_of(model), identity_of(counting)
    counting(torch.ones(2))
    assert not differences(then, identity_like(model, then))
    assert not differences(of_function, identity_like(counting, of_function))


def documented(x):
    """Says what it does."""
    return x + 1


def test_a_docstring_is_none_of_the_code():
    space = {}
    exec("def documented(x):\n    return x + 1", space)
    assert identity_of(space["documented"]).code == identity_of(documented).code


def test_a_class_that_is_called_like_one_of_torchs_is_ones_own():
    class LayerNorm(nn.Module):
        def forward(self, x):
            return x * 2

    model = nn.Sequential(nn.LayerNorm(4), LayerNorm())
    then = identity_of(model)
    assert not differences(then, identity_like(model, then))


class Lazy(nn.Module):
    """Sets an attribute when it is first called."""

    def __init__(self):
        super().__init__()
        self.layer, self.size = nn.Linear(4, 4), None

    def forward(self, x):
        if self.size is None:
            self.size = x.shape[-1]
        return self.layer(x) * self.size


def test_attributes_that_cannot_be_listened_to_count_as_read():
    model = Delegating()
    reads = Reads(model)
    with reads.listening():
        model(torch.ones(2, 4))
    assert {"own", "training", "inner.scale"} <= reads.paths
    assert "inner.unread" not in reads.paths


@pytest.fixture
def reading(laboratory):
    """A model that was tuned in training mode, where that does not matter, and its artifact."""
    model = Reading()
    laboratory.prepare(model, torch.randn(3, 4), preload=True)
    artifact = laboratory.pack(compiled())
    assert not isinstance(artifact, Failure), artifact
    return model, artifact


def changed(model, path, value):
    other = copy.deepcopy(model)
    owner, _, name = path.rpartition(".")
    setattr(attrgetter(owner)(other) if owner else other, name, value)
    return other


MATTERS = [
    ("scale", 3.0, "attribute `scale` is 3.0, was 2.0"),
    ("sizes", [2, 1], "attribute `sizes` is [2, 1], was [1, 2]"),
    ("config.power", 3, "attribute `config.power` is 3, was 2"),
    ("settings.doubled", False, "attribute `settings.doubled` is False, was True"),
    ("settings.inner.offset", 2, "attribute `settings.inner.offset` is 2, was 1"),
    ("half", np.float32(2), "attribute `half` is "),
    ("window", slice(0, 2), "attribute `window` is slice(0, 2, None), was slice(0, 4, None)"),
]


def test_what_a_program_depends_on_is_compared_and_nothing_else(reading):
    model, artifact = reading
    x = torch.randn(3, 4)
    for path, value in (("unread", 2), ("settings.comment", "more"), ("layer.calls", 3)):
        other = changed(model, path, value).eval()
        module = autocompile.load(artifact, other)
        torch.testing.assert_close(module(x), other(x))
        other.eval()
        other.unread = 5
        module(x)
        assert module.status.calls == {"aot": 2}, path
    for path, value, said in MATTERS:
        other = changed(model, path, value)
        with pytest.warns(RuntimeWarning) as warned:
            module = autocompile.load(artifact, other)
        assert said in str(warned[0].message)
        torch.testing.assert_close(module(x), other(x))
        assert module.status.runtime == "eager"
    for path, value, said in MATTERS:
        other = copy.deepcopy(model)
        module = autocompile.load(artifact, other)
        module(x)
        owner, _, name = path.rpartition(".")
        setattr(attrgetter(owner)(other) if owner else other, name, value)
        torch.testing.assert_close(module(x), other(x))
        assert module.status.calls == {"aot": 1, "eager": 1}
        assert module.status.fallbacks[0].reason.startswith(said)
    other = copy.deepcopy(model)
    module = autocompile.load(artifact, other)
    module(x)
    other.settings = Settings()  # another object with the same values, then one with others
    module(x)
    other.settings = changed(model, "settings.doubled", False).settings
    torch.testing.assert_close(module(x), other(x))
    assert module.status.calls == {"aot": 2, "eager": 1}


def test_a_model_that_changes_itself_when_it_is_called_is_not_packed(laboratory):
    laboratory.prepare(Counting().eval(), torch.randn(2, 4), preload=True)
    refused = laboratory.pack(compiled())
    assert refused.message == "it changes its attribute `calls` when called"
    laboratory.prepare(Lazy().eval(), torch.randn(2, 4), preload=True)
    assert "sets its attribute `size` when it is first called" in laboratory.pack(compiled()).message


def in_a_process(*arguments, cwd):
    ran = subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    assert not ran.stderr, ran.stderr
    return ran.stdout


def in_a_notebook(text, cwd):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text)])
    NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(cwd)}}).execute()
    return "".join(output.text for output in notebook.cells[0].outputs if output.output_type == "stream")


@pytest.mark.filterwarnings("ignore")  # of the notebook's own machinery
def test_what_the_command_line_tunes_is_served_at_every_door(laboratory, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "shared", raising=False)  # of another test
    script = place(tmp_path)
    laboratory.prepare(*workload_from_script(script)[:2])
    artifact = laboratory.pack(compiled())
    assert not isinstance(artifact, Failure), artifact
    (place(tmp_path / "copy").parent / "package").mkdir()
    (tmp_path / "copy" / "package" / "__main__.py").write_text(
        LOAD.format(bring="from wl import model", artifact=str(artifact))
    )
    in_main = LOAD.format(bring=textwrap.dedent(SOURCE), artifact=str(artifact))
    (tmp_path / "main.py").write_text(in_main)
    from_module = LOAD.format(bring="from wl import model", artifact=str(artifact))
    doors = {
        "module": in_a_process("-c", from_module, cwd=tmp_path),
        "__main__": in_a_process("main.py", cwd=tmp_path),
        "copy, python -m": in_a_process("-m", "package", cwd=tmp_path / "copy"),
        "notebook": in_a_notebook(in_main, tmp_path),
    }
    for door, printed in doors.items():
        runtime, error = json.loads(printed.strip().splitlines()[-1])
        assert runtime == "aot", door
        assert error < 1e-4, door
