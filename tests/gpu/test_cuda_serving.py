"""Serving on a GPU: devices of tensors, CUDA graphs and threads, and starting from another path."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from laboratory import Laboratory, reply_to
from servings import AHEAD, CARRIED
from torch import nn
from torch.torch_version import TorchVersion

import autocompile
from autocompile.artifact.integrity import open_manifest
from autocompile.core.job import FreshStart, FreshTask, Limits, ToolchainTask
from autocompile.core.outcome import Failure, Measurement
from autocompile.core.plan import Plan
from autocompile.runner.local import LocalRunner
from autocompile.runtime.aot.cuda_home import problem
from autocompile.runtime.aot.package import package_of
from autocompile.runtime.compiler_options import MODES
from autocompile.runtime.inductor.settings import compiled

pytestmark = pytest.mark.gpu
DEVICE = "cuda"
GRAPHS = compiled(options=MODES["reduce-overhead"])
IN_PRODUCTION = """
import json, sys, torch, autocompile
from torch import nn
torch.manual_seed(0)
layers = [layer for _ in range(3) for layer in (nn.Linear(32, 32), nn.GELU())]
module = autocompile.load(sys.argv[1], nn.Sequential(*layers).to(sys.argv[2]).eval())
for _ in range(3):
    module(torch.ones(4, 32, device=sys.argv[2]))
status = module.status
print(json.dumps([status.runtime, status.start, status.cache.hits, status.cache.misses, len(status.fallbacks)]))
"""


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runner")
    with LocalRunner(directory / "jobs", directory / "toolchain") as local:
        toolchain = reply_to(local, ToolchainTask(DEVICE), Limits(200.0), cache="toolchain")
        assert not toolchain.problem, toolchain
        yield local


@pytest.fixture
def laboratory(runner, tmp_path):
    return Laboratory(runner, tmp_path)


def stack():
    torch.manual_seed(0)
    layers = [layer for _ in range(3) for layer in (nn.Linear(32, 32), nn.GELU())]
    return nn.Sequential(*layers).to(DEVICE).eval()


class Looks(nn.Module):
    """A constant of its code that is copied to the device, positions from a table, and lengths that stay on the CPU."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(24, 16)
        self.linear = nn.Linear(16, 16)

    def forward(self, x, lengths):
        positions = torch.arange(x.shape[1], device=x.device)
        scale = torch.tensor([0.5, 1.0, 1.5, 2.0] * 4).to(x.device)
        return self.linear(x + self.table(positions)) * scale, lengths * 2


@torch.no_grad()
@pytest.mark.skipif(TorchVersion(torch.__version__) < "2.13", reason="before 2.13, torch binds none on the CPU")
def test_constants_and_arguments_lie_where_they_lay_and_sizes_end_with_the_table(laboratory):
    model = Looks().to(DEVICE).eval()
    calls = [(torch.randn(2, n, 16, device=DEVICE), torch.tensor([n, n])) for n in (6, 9)]
    laboratory.prepare(model, calls)
    artifact = laboratory.pack(compiled())
    assert isinstance(artifact, Path), artifact
    (program,) = open_manifest(artifact).programs
    assert [guard.device_type for guard in program.guards] == [DEVICE, "cpu"]
    assert max(axis.high for axis in program.axes) <= 24
    module = autocompile.load(artifact, model)
    for call in calls:
        torch.testing.assert_close(module(*call), model(*call), rtol=1e-3, atol=1e-3)
    assert module.status.calls == {"aot": 2}, module.status


@torch.no_grad()
def test_a_weight_that_is_not_aligned_is_served_eager(laboratory):
    laboratory.prepare(stack(), torch.ones(4, 32, device=DEVICE))
    artifact = laboratory.pack(compiled())
    model = stack()
    memory = torch.empty(32 * 32 + 1, device=DEVICE)
    memory[1:] = model[0].weight.reshape(-1)
    model[0].weight = nn.Parameter(memory[1:].view(32, 32))
    with pytest.warns(RuntimeWarning, match="does not start at a multiple of 16 bytes"):
        module = autocompile.load(artifact, model)
    x = torch.ones(4, 32, device=DEVICE)
    assert torch.equal(module(x), model(x))


def test_the_probe_for_headers_says_whether_programs_can_be_compiled(laboratory):
    laboratory.prepare(stack(), torch.ones(4, 32, device=DEVICE))
    packed = laboratory.pack(compiled())
    assert isinstance(packed, Path) == (problem() == ""), (packed, problem())


@torch.no_grad()
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler's own imports
def test_cuda_graphs_serve_one_thread_and_others_are_served_right(laboratory):
    laboratory.prepare(stack(), torch.ones(4, 32, device=DEVICE))
    artifact = laboratory.pack(GRAPHS, CARRIED)
    model = stack()
    module = autocompile.load(artifact, model)
    inputs = [torch.full((4, 32), float(n), device=DEVICE) for n in range(8)]
    own = [module(x) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        others = list(pool.map(module, inputs))
    for x, one, other in zip(inputs, own, others, strict=True):
        torch.testing.assert_close(one, model(x), rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(other, model(x), rtol=1e-3, atol=1e-3)
    assert module.status.calls == {"inductor": 8, "eager": 8}
    assert "make all calls from one thread" in module.status.fallbacks[0].reason


def test_a_carried_cache_is_found_at_another_path(laboratory, tmp_path):
    laboratory.prepare(stack(), torch.ones(4, 32, device=DEVICE))
    artifact = laboratory.pack(compiled(), CARRIED)
    assert isinstance(artifact, Path), artifact
    needed = open_manifest(artifact).requirements
    if DEVICE == "cuda":
        assert needed.gpu == torch.cuda.get_device_name()
        assert needed.multiprocessors == torch.cuda.get_device_properties(0).multi_processor_count
    moved = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "elsewhere"), "TRITON_CACHE_DIR": str(tmp_path / "triton")}
    command = [sys.executable, "-P", "-c", IN_PRODUCTION, str(artifact), DEVICE]
    done = subprocess.run(command, env={**os.environ, **moved}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    runtime, start, hits, misses, fallbacks = json.loads(done.stdout.splitlines()[-1])
    assert (runtime, start, misses, fallbacks) == ("inductor", "cache", 0, 0)
    assert hits > 0
    groups = list((tmp_path / "triton").rglob("__grp__*.json"))
    for group in groups:
        assert all(Path(path).exists() for path in json.loads(group.read_text())["child_paths"].values()), group
    assert groups or DEVICE == "cpu"


def test_a_start_is_measured_while_nothing_else_holds_the_device(runner, laboratory):
    laboratory.prepare(stack(), torch.ones(4, 32, device=DEVICE))
    artifact = laboratory.pack(compiled(), CARRIED)
    task = FreshTask(laboratory.workload, compiled(), str(artifact))
    started = reply_to(runner, task, Limits(120.0), cache="start")
    assert isinstance(started, FreshStart), started
    assert (started.serving, started.cache_misses) == (CARRIED, 0)


@torch.no_grad()
def test_a_packed_program_is_replayed_as_a_cuda_graph_for_all_threads_and_follows_its_weights(laboratory):
    laboratory.prepare(stack(), torch.ones(4, 32, device=DEVICE))
    plan = Plan(AHEAD.runtime, GRAPHS.settings, sizes="fixed")
    artifact = laboratory.pack(plan)
    assert isinstance(artifact, Path), artifact
    (program,) = open_manifest(artifact).programs
    assert package_of(program).is_captured
    model = stack()
    module = autocompile.load(artifact, model)

    def is_right():
        inputs = [torch.full((4, 32), float(n), device=DEVICE) for n in range(16)]
        with ThreadPoolExecutor(4) as pool:
            got = [*map(module, inputs), *pool.map(on_a_stream_of_its_own, inputs)]
        for x, output in zip(inputs * 2, got, strict=True):
            torch.testing.assert_close(output, model(x), rtol=1e-3, atol=1e-3)

    def on_a_stream_of_its_own(x):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.no_grad(), torch.cuda.stream(stream):
            output = module(x)
        stream.synchronize()
        return output

    is_right()
    model[0].weight.mul_(1.5)
    is_right()
    model[2].weight = nn.Parameter(torch.randn_like(model[2].weight))
    is_right()
    assert module.status.calls == {AHEAD.runtime: 96}, module.status
    found = laboratory.trial(plan, artifact=str(artifact))
    assert isinstance(found, Measurement), found


def test_a_program_that_reads_the_cpu_is_not_captured(laboratory):
    laboratory.prepare(Looks().to(DEVICE).eval(), [(torch.randn(2, 6, 16, device=DEVICE), torch.tensor([6, 6]))])
    packed = laboratory.pack(Plan(AHEAD.runtime, GRAPHS.settings, sizes="fixed"))
    assert isinstance(packed, Failure)
    assert "a CUDA graph cannot read tensors on the CPU, and an argument is on the CPU" in packed.message
