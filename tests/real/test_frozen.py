"""Programs that contain their weights, in a separate file next to the code that all processes share."""

import json
import logging
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from torch import nn

import autocompile
from autocompile.artifact.integrity import entry_for, listed, open_manifest, write_manifest
from autocompile.artifact.mismatch import requirements
from autocompile.core.manifest import MANIFEST_VERSION, Manifest
from autocompile.core.plan import Plan
from autocompile.core.serde import to_plain
from autocompile.core.serving import Serving
from autocompile.runtime.aot import runner, write_constants
from autocompile.runtime.aot.package import package_of
from autocompile.runtime.aot.runtime import RUNTIME
from autocompile.runtime.base import NotLoadable, NotPackable, WeightsDiffer
from autocompile.runtime.built import transformed
from autocompile.runtime.files import Files
from autocompile.runtime.guards import Guard
from autocompile.runtime.held_tensors import HeldTensors
from autocompile.runtime.model_watch import Watch
from autocompile.runtime.snippet import snippet
from autocompile.runtime.weights import Weights, digests
from autocompile.workload.axes import FreeAxis
from autocompile.workload.identity.facts import identity_of
from autocompile.workload.samples import Sample

# These warnings come from torch's own compiler, which usually runs in another process.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*treespec.*:FutureWarning"),
]

SIZES = (1, 2, 5, 16)
BATCH = FreeAxis("n", frozenset({(0, 0)}), (4,), 1, 16)
CPU = torch.device("cpu")
FROZEN = {"options": {"freezing": True}}
SMAPS = Path("/proc/self/smaps")


class Perceptron(nn.Module):
    """Plain constants, and ones in a layout of oneDNN's; one of a closure's, and tied weights."""

    def __init__(self):
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(16, 64), nn.Linear(64, 16), nn.LayerNorm(16)
        self.again = nn.Linear(16, 64)
        self.again.weight = self.up.weight

    def forward(self, x):
        hidden = torch.relu(self.up(x)) + self.again(x)
        return {"scores": self.norm(self.down(hidden)) * torch.linspace(0, 1, 16), "name": "perceptron"}


def images():
    layers = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(128, 4))
    model = nn.Sequential(*layers).eval()
    model(torch.randn(4, 3, 8, 8))
    return model


class Packed:
    """A model's program in a directory, as a packer leaves it."""

    def __init__(self, model, plan, inputs, directory, axes=(BATCH,)):
        self.model, self.plan, self.directory = model, plan, directory
        sample = Sample((inputs,), {})
        self.program = RUNTIME.compile_ahead(transformed(model, plan), plan, sample, axes, directory, "program0")
        self.package = package_of(self.program)

    def load(self, model=None, program=None, watch=None):
        return RUNTIME.load(program or self.program, Files(self.directory), model, watch or Watch(model))

    def called(self, run, *args):
        return run(Guard(self.program, self.model, CPU)(args, {}))

    def constants(self):
        return self.directory / self.package.constants_file


@pytest.fixture(scope="module")
def perceptron(tmp_path_factory):
    torch.manual_seed(0)
    inputs = torch.randn(4, 16)
    return Packed(Perceptron().eval(), Plan("aot", settings=FROZEN), inputs, tmp_path_factory.mktemp("perceptron"))


def read(model, **how):
    """The digests of a model's tensors."""
    return digests(HeldTensors(model).named(), **how)


def tensors_in(output):
    return [leaf for leaf in torch.utils._pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]


def agrees(packed, run, shape, **tolerances):
    for size in SIZES:
        x = torch.randn(size, *shape)
        with torch.no_grad():
            torch.testing.assert_close(tensors_in(packed.called(run, x)), tensors_in(packed.model(x)), **tolerances)


def test_it_needs_no_model_and_equals_it_in_every_size(perceptron):
    assert not perceptron.program.needs_model
    assert {bool(one.layout) for one in perceptron.package.constants} == {False, True}
    run = perceptron.load()
    agrees(perceptron, run, (16,))
    got = perceptron.called(run, torch.randn(3, 16))
    assert got["name"] == "perceptron"
    assert not got["scores"].requires_grad


def test_convolutions_in_another_memory_format_and_precision(tmp_path):
    torch.manual_seed(0)
    plan = Plan("aot", settings=FROZEN, memory_format="channels_last", autocast="bfloat16")
    packed = Packed(images(), plan, torch.randn(4, 3, 8, 8), tmp_path)
    run = packed.load()
    agrees(packed, run, (3, 8, 8), rtol=2e-2, atol=2e-2)
    x = torch.randn(5, 3, 8, 8)
    expected = packed.called(run, x)
    assert expected.dtype is torch.float32
    assert torch.equal(packed.called(run, x.contiguous(memory_format=torch.channels_last)), expected)
    assert {one.dtype for one in packed.package.constants} == {"bfloat16"}


def mapping(path):
    """What the kernel tells of the mappings of a file into this process, in kB."""
    found, here = {}, False
    for line in SMAPS.read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            here = line.endswith(str(path))
        elif here and line.endswith("kB"):
            name, size = line.split(":")
            found[name] = found.get(name, 0) + int(size.split()[0])
    return found


def artifact_of(packed, directory):
    """An artifact for `autocompile.load`, as the search writes one."""
    shutil.copytree(packed.directory, directory / "packed-000000000000")
    manifest = Manifest(
        MANIFEST_VERSION, "frozen", packed.plan, "cpu", identity_of(packed.model), Serving("aot", "load"), (),
        requirements("aot", with_python=False, device_type="cpu"),
        programs=(replace(packed.program, directory="packed-000000000000"),),
        files=tuple(entry_for(directory, path) for path in listed(directory, "packed-000000000000")),
        weights=read(packed.model),
    )  # fmt: skip
    write_manifest(directory, manifest)
    return directory


SHARING = """
import autocompile, json, sys, torch
from pathlib import Path
sys.path[:0] = {paths!r}
from test_frozen import mapping
module = autocompile.load({artifact!r})
module(torch.ones(4, 16))
scores = module(torch.ones(4, 16))["scores"]
print(json.dumps([scores[0].tolist(), mapping({constants!r}), module.status.calls]))
"""


@pytest.mark.skipif(not SMAPS.exists(), reason="the system does not tell what is mapped")
def test_two_processes_share_it_and_neither_has_a_model(perceptron, tmp_path):
    artifact = artifact_of(perceptron, tmp_path)
    program = open_manifest(artifact).programs[0]
    constants = str(artifact / program.directory / perceptron.package.constants_file)
    module = autocompile.load(artifact)
    own = module(torch.ones(4, 16))["scores"]
    assert mapping(constants)["Rss"] > 0
    assert mapping(constants)["Anonymous"] == 0, "none of it was copied"
    tests = Path(__file__).parent
    code = SHARING.format(artifact=str(artifact), constants=constants, paths=[str(tests), str(tests.parent)])
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    scores, other, calls = json.loads(ran.stdout)
    assert calls == {"aot": 2}
    torch.testing.assert_close(torch.tensor(scores), own[0])
    assert other["Rss"] > 0
    assert other["Private_Dirty"] == other["Private_Clean"] == 0, "all of it is this process's, too"


def test_it_is_loaded_often_and_from_threads_and_outlives_its_files(perceptron, tmp_path):
    directory = tmp_path / "gone"
    shutil.copytree(perceptron.directory, directory)
    files, found = Files(directory), []

    def load():
        run = RUNTIME.load(perceptron.program, files, None, Watch(None))
        found.append((run, perceptron.called(run, torch.ones(4, 16))["scores"]))

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shutil.rmtree(directory)
    assert len(found) == 4
    for run, scores in found:
        torch.testing.assert_close(scores, found[0][1])
        agrees(perceptron, run, (16,))


def shortened(packed):
    packed.constants().write_bytes(packed.constants().read_bytes()[:100])
    return {}


def shortened_as_told(packed):
    shortened(packed)
    return {"constants_bytes": 100}


def missing(packed):
    packed.constants().unlink()
    return {}


def no_numbers(packed):
    return {"constants": [replace(one, dtype="odd") for one in packed.package.constants]}


def beyond_its_place(packed):
    return {
        "constants": [replace(one, shape=tuple(2 * size for size in one.shape)) for one in packed.package.constants]
    }


def another_layout(packed):
    return {"constants": [replace(one, layout=one.layout[:-5]) for one in packed.package.constants]}


def another_name(packed):
    return {"constants": [replace(one, name=f"{one.name}s") for one in packed.package.constants]}


def no_code(packed):
    for name in packed.package.code_files:
        (packed.directory / name).unlink()
    return {}


@pytest.mark.parametrize(
    "damage",
    [shortened, shortened_as_told, missing, no_numbers, beyond_its_place, another_layout, another_name, no_code],
)
def test_what_is_damaged_is_said_in_one_line(perceptron, tmp_path, damage):
    damaged = Packed.__new__(Packed)
    vars(damaged).update(vars(perceptron))
    damaged.directory = tmp_path / "damaged"
    shutil.copytree(perceptron.directory, damaged.directory)
    package = replace(perceptron.package, **damage(damaged))
    with pytest.raises(NotLoadable) as raised:
        damaged.load(program=replace(perceptron.program, own=to_plain(package)))
    assert len(str(raised.value).splitlines()) == 1
    agrees(perceptron, perceptron.load(), (16,))


def test_it_serves_while_the_models_weights_are_those_that_it_holds(perceptron):
    model = Perceptron().eval()
    model.load_state_dict(perceptron.model.state_dict())
    watch = Watch(model)
    run = Weights(model, read(perceptron.model), watch).holding(perceptron.load(model))
    perceptron.called(run, torch.ones(4, 16))
    with torch.no_grad():
        model.down.bias.add_(1)
    with pytest.raises(WeightsDiffer, match=r"down\.bias differs"):
        perceptron.called(run, torch.ones(4, 16))


def closed(_constants, _path):
    raise write_constants.NotMappable("it cannot be")


def unpacks_for_itself(loader):
    def load(package, *arguments):
        if Path(package).is_dir():
            raise RuntimeError("a directory")
        return loader(package, *arguments)

    return load


def test_where_torch_cannot_do_it_so_the_code_holds_the_weights(tmp_path, monkeypatch, caplog):
    """As with a torch that tells of no constants, and loads no directory."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 4)).eval()
    loader = torch._C._aoti.AOTIModelPackageLoader
    with caplog.at_level(logging.WARNING, "autocompile"), monkeypatch.context() as patched:
        patched.setattr("autocompile.runtime.aot.compile.write_constants", closed)
        patched.setattr(runner.torch._C._aoti, "AOTIModelPackageLoader", unpacks_for_itself(loader))
        packed = Packed(model, Plan("aot", settings=FROZEN), torch.randn(4, 8), tmp_path)
    assert "each process has a copy of them: it cannot be" in caplog.text
    assert packed.program.files == ("program0.pt2",)
    assert [path.name for path in tmp_path.iterdir()] == ["program0.pt2"]
    assert not packed.program.needs_model
    agrees(packed, packed.load(), (8,))


OUTSIDE = [torch.ones(8)]


class Reaching(nn.Linear):
    def forward(self, x):
        return super().forward(x) * OUTSIDE[0]


def test_a_tensor_whose_changes_would_not_be_noticed_is_not_frozen(tmp_path):
    with pytest.raises(NotPackable, match="it takes a tensor from outside of itself"):
        Packed(Reaching(8, 8).eval(), Plan("aot", settings=FROZEN), torch.randn(4, 8), tmp_path)


class ReadingAGlobal(nn.Linear):
    def forward(self, x):
        return super().forward(x) * TABLE


TABLE = torch.ones(8)


def test_what_only_a_program_on_the_models_own_weights_cannot_take_concerns_no_other_runtime(tmp_path):
    with pytest.raises(NotPackable, match="it takes a tensor from outside of itself") as raised:
        Packed(ReadingAGlobal(8, 8).eval(), Plan("aot"), torch.randn(4, 8), tmp_path / "live")
    assert raised.value.cause == ""


def test_on_the_models_own_weights_it_has_few_constants_and_is_bound_again_without_its_files(tmp_path):
    torch.manual_seed(0)
    model = Perceptron().eval()
    packed = Packed(model, Plan("aot"), torch.randn(4, 16), tmp_path)
    assert packed.program.needs_model
    assert {one.path for one in packed.package.weights} < dict(model.named_parameters(remove_duplicate=False)).keys()
    assert sum(one.size for one in packed.package.constants) < 1024
    watch = Watch(model)
    run = packed.load(model, watch=watch)
    agrees(packed, run, (16,))
    with torch.no_grad():
        model.down.weight.mul_(2)
    agrees(packed, run, (16,))
    shutil.rmtree(tmp_path)
    for _ in range(3):
        model.down.weight = nn.Parameter(torch.randn(16, 64))
        assert watch.changed() == ""
        agrees(packed, run, (16,))


def test_its_snippet_gives_the_models_output_in_each_size():
    torch.manual_seed(0)
    model = nn.Linear(8, 4).eval()
    scope = {"model": model}
    exec(snippet(Plan("aot", autocast="bfloat16", settings=FROZEN), device_type="cpu", is_module=True), scope)
    x = torch.randn(4, 8)
    for _ in range(2):
        torch.testing.assert_close(scope["run"](x), model(x).detach(), rtol=2e-2, atol=2e-2)
    assert len(scope["programs"]) == 1
