"""The assumptions of measuring that only a GPU can confirm; tests/real/test_on_a_gpu.py has the other tests."""

import subprocess
import sys
import threading
import time

import psutil
import pytest
import torch
from laboratory import Laboratory
from msgspec.structs import replace
from torch import nn

from autocompile.core.outcome import Measurement
from autocompile.core.plan import Plan
from autocompile.core.profile import Profile
from autocompile.gpus import gpu_states, nvidia_gpus
from autocompile.runner.local import LocalRunner
from autocompile.runtime.compiler_options import MODES
from autocompile.runtime.inductor.settings import compiled
from autocompile.runtime.inductor.workers import end_workers
from autocompile.trial.clock.disturbance import HostWatch
from autocompile.trial.clock.nvml import GpuWatch, _handle
from autocompile.trial.profile.ceilings import convolves_in_tf32, measure_ceilings
from autocompile.workload.spans import Spans
from autocompile.workload.tf32 import products_in_tf32
from autocompile.workload.training.training import Training

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    directory = tmp_path_factory.mktemp("gpu")
    with LocalRunner(directory / "jobs", directory / "toolchain") as made:
        yield made


@pytest.fixture
def laboratory(runner, tmp_path):
    return Laboratory(runner, tmp_path)


def off_by(result, left, right):
    exact = left.double() @ right.double()
    return float((result - exact).norm() / exact.norm())


def test_products_in_tf32_are_less_exact_and_only_as_long_as_asked_for():
    has_tf32 = torch.cuda.get_device_capability() >= (8, 0)
    left, right = torch.randn(2, 512, 512, device="cuda")
    before = off_by(left @ right, left, right)
    with products_in_tf32():
        meanwhile = off_by(left @ right, left, right)
    assert before < 1e-6
    assert meanwhile < 2e-3
    assert (meanwhile > 1e-5) == has_tf32
    assert off_by(left @ right, left, right) == before


def test_a_plan_in_tf32_is_measured_within_its_own_limits_in_eager_and_compiled(laboratory):
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(4))).cuda().eval()
    assert isinstance(laboratory.prepare(model, torch.randn(64, 512, device="cuda")), Profile)
    for plan in (Plan(float32="tf32"), Plan(runtime="inductor", float32="tf32")):
        found = laboratory.trial(plan, cache=plan.key)
        assert isinstance(found, Measurement), found
        assert found.accuracy.error > found.accuracy.baseline_error
        assert found.counters.recompiles == 0


def fitted(model, batch):
    return model(batch).square().mean()


def test_a_training_in_tf32_is_measured_within_its_own_limits(laboratory):
    model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 8)).cuda().train()
    training = Training(loss=fitted, optimizer=torch.optim.AdamW)
    assert isinstance(laboratory.prepare(model, [torch.randn(64, 512, device="cuda")], training=training), Profile)
    found = laboratory.trial(Plan(float32="tf32"))
    assert isinstance(found, Measurement), found


@pytest.mark.parametrize(
    "plan",
    [
        Plan(autocast="float16"),
        replace(compiled(), autocast="float16", optimizer="fused"),
        replace(compiled(), autocast="float16", optimizer="compiled"),
        replace(compiled(only_updates=True), optimizer="compiled"),
    ],
)
def test_a_training_with_a_scaled_loss_and_one_whose_update_is_compiled_are_measured(laboratory, plan):
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)).cuda().train()
    training = Training(loss=fitted, optimizer=torch.optim.AdamW, clip_norm=1.0)
    assert isinstance(laboratory.prepare(model, [torch.randn(64, 64, device="cuda")], training=training), Profile)
    outcome = laboratory.trial(plan)
    assert isinstance(outcome, Measurement), outcome


def test_this_process_is_recognized_or_mapped_while_it_computes():
    """On a GPU that nobody else computes on."""
    product = torch.randn(2048, 2048, device="cuda")
    watch, host = GpuWatch(), HostWatch("cuda")
    stop = threading.Event()

    def compute():
        while not stop.is_set():
            torch.mm(product, product)
            torch.cuda.synchronize()

    worker = threading.Thread(target=compute)
    worker.start()
    try:
        stop.wait(3.0)
        assert watch.other_processes() == 0
        assert host.verdict().gpu_processes == 0
    finally:
        stop.set()
        worker.join()


def test_nvml_knows_the_device_that_torch_uses():
    import pynvml

    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetName(_handle()) == torch.cuda.get_device_name()
    assert nvidia_gpus()[0]
    assert all(state.open_to != "none" for state in gpu_states())


def test_the_peak_of_a_call_holds_no_reference(laboratory):
    """The outputs of all cases, in float64 and in float32, are some 20 times what a call itself takes."""
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)).cuda().eval()
    inputs = [torch.randn(rows, 64, device="cuda") for rows in (200_000, 200_001, 200_002, 200_003)]
    laboratory.prepare(model, inputs)
    found = laboratory.trial(Plan())
    assert isinstance(found, Measurement), found
    one_call = 3 * 200_003 * 64 * 4
    given = sum(one.nbytes for one in inputs)
    assert found.peak_memory_bytes < given + 2 * one_call


def test_another_size_under_cuda_graphs_is_a_capture_and_no_recompile(laboratory):
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU()).cuda().eval()
    laboratory.prepare(model, [torch.randn(rows, 32, device="cuda") for rows in (4, 16)])
    found = laboratory.trial(compiled(options=MODES["reduce-overhead"], dynamic=True))
    assert isinstance(found, Measurement), found
    assert found.counters.captures == 2
    assert (found.counters.unseen, found.counters.unseen_recompiles, found.counters.unseen_captures) == (1, 0, 1)


class Odd(nn.Module):
    """Looks beyond its table for one size, between those that it is called with."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(24, 8)

    def forward(self, x):
        rows = x.shape[0]
        return x + self.table(torch.arange(rows, device=x.device) + (1000 if rows == 13 else 0))


def test_a_size_of_which_the_device_dies_ends_no_trial(laboratory):
    laboratory.prepare(Odd().cuda().eval(), [torch.randn(rows, 8, device="cuda") for rows in (6, 20)])
    for key in ("first", "again"):
        found = laboratory.trial(compiled(), cache=key)
        assert isinstance(found, Measurement), found
        assert found.counters.unseen == 0


def test_the_device_tells_how_long_calls_take_that_are_not_waited_for():
    measured, stream = Spans(), torch.cuda.current_stream()
    began = time.perf_counter()
    for _ in range(20):
        span = measured.begin()
        torch.cuda._sleep(20_000_000)
        measured.end(span)
    launched_s = (time.perf_counter() - began) / 20
    assert not stream.query(), "the device is still at it"
    assert measured.mean_s > 2 * launched_s


def test_tritons_own_half_is_in_every_new_cache(runner, laboratory):
    from autocompile.checkup import _toolchain

    assert not _toolchain(runner, "cuda").problem
    laboratory.prepare(nn.Linear(8, 8).cuda().eval(), torch.randn(4, 8, device="cuda"))
    task = laboratory.submit(Plan(), cache="seeded")
    task.answer()
    assert list((runner._caches / "seeded" / "inductor" / "triton").rglob("cuda_utils*.so"))


def test_the_compilers_workers_are_gone_when_they_were_ended():
    torch.compile(lambda x: (x.sin() + 1).sum())(torch.ones(1024, device="cuda"))
    end_workers()
    left = [child.cmdline() for child in psutil.Process().children(recursive=True)]
    assert not [line for line in left if any("compile_worker" in part for part in line)]


POISONED = """
import torch
from autocompile.trial.forking import forked_can_use_cuda
assert forked_can_use_cuda(), "nothing has touched the driver"
assert forked_can_use_cuda(), "the child's work is not this process's"
import ctypes
ctypes.CDLL("libcuda.so.1").cuInit(0)
assert not torch.cuda.is_initialized(), "torch does not know"
print(forked_can_use_cuda())
"""


def test_a_driver_that_was_touched_is_seen_by_a_forked_child():
    done = subprocess.run([sys.executable, "-c", POISONED], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "False", done.stderr


def test_convolutions_have_a_ceiling_of_their_own_by_default():
    assert convolves_in_tf32("cuda", torch.float32)
    assert measure_ceilings("cuda", "float32").convolution_flops_per_s > 0
