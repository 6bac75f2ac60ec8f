"""The CUDA path, on a machine with a GPU: `pytest -m gpu`."""

from pathlib import Path

import pytest
import torch
from laboratory import Laboratory, reply_to
from torch import nn

import autocompile
from autocompile.core.job import Acceptance, Limits, ProfileTask, Timing, ToolchainTask, TrialTask
from autocompile.core.outcome import Measurement
from autocompile.core.profile import Profile
from autocompile.core.tolerance import published_tolerance
from autocompile.runner.local import LocalRunner
from autocompile.runtime.compiler_options import MODES
from autocompile.runtime.inductor.settings import compiled
from autocompile.workload.gpu import gpu_kind
from autocompile.workload.spool import spool
from autocompile.workload.training.training import Training

pytestmark = pytest.mark.gpu
TIMING = Timing(precision=0.05, limit_s=2.0)


def small_model():
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (nn.Linear(256, 256), nn.GELU())]
    return nn.Sequential(*layers).cuda().eval(), torch.randn(16, 256, device="cuda")


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    directory = tmp_path_factory.mktemp("gpu")
    with LocalRunner(directory / "jobs", directory / "toolchain") as runner:
        toolchain = reply_to(runner, ToolchainTask("cuda"), Limits(200.0), cache="toolchain")
        assert not toolchain.problem, toolchain
        workload = spool(*small_model(), directory / "workload")
        reference = str(directory / "reference.pt")
        profile = reply_to(runner, ProfileTask(workload, reference, TIMING, 0), Limits(120.0), cache="profile")
        assert isinstance(profile, Profile), profile
        yield runner, workload, reference, profile


def test_the_profile_counts_device_kernels(bench):
    _runner, workload, _reference, profile = bench
    assert workload.device_type == "cuda"
    assert workload.gpus == (gpu_kind(),)
    assert workload.gpus[0].name == torch.cuda.get_device_name()
    assert profile.kernels_per_call >= 16
    assert profile.matrix_kernels >= 8
    assert 0 <= profile.busy <= 1
    assert profile.reference == "float64"


def test_a_step_of_training_from_within(bench, tmp_path):
    """Its kernels run on the GPU's own clock, and what it holds is what torch's allocator has given."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 1)).cuda().train()
    batch = torch.randn(64, 256, device="cuda"), torch.randn(64, 1, device="cuda")
    training = Training(loss=fitted, optimizer=torch.optim.AdamW)
    workload = spool(model, [batch], tmp_path / "workload", training=training)
    task = ProfileTask(workload, str(tmp_path / "reference.pt"), TIMING, 0)
    found = reply_to(bench[0], task, Limits(120.0), cache="profile")
    assert isinstance(found, Profile), found
    assert [phase.name for phase in found.step.phases] == ["forward", "backward", "optimizer", "other"]
    assert sum(phase.share for phase in found.step.phases) == pytest.approx(1)
    assert all(phase.kernels > 0 for phase in found.step.phases[:3])
    assert sum(phase.kernels for phase in found.step.phases) == pytest.approx(found.kernels_per_call, abs=3)
    parameters, memory = sum(p.numel() * 4 for p in model.parameters()), found.step.memory
    assert memory.parameters_bytes == memory.gradients_bytes == parameters
    assert memory.optimizer_bytes == 2 * parameters, "the counters of steps lie on the CPU"
    assert memory.activations_bytes == 64 * (512 + 1) * 4
    assert memory.peak_bytes >= 3 * parameters


def fitted(model, batch):
    inputs, targets = batch
    return nn.functional.mse_loss(model(inputs), targets)


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_is_measured_and_correct(bench, mode):
    runner, workload, reference, _profile = bench
    plan = compiled(options=MODES[mode])
    task = TrialTask(workload, plan, reference, TIMING, Acceptance(published_tolerance("")), 0)
    found = reply_to(runner, task, Limits(300.0), cache=plan.key)
    assert isinstance(found, Measurement), found
    assert found.counters.recompiles == 0
    assert found.peak_memory_bytes > 0
    if "cudagraphs" in str(plan.settings.get("options", {})):
        assert found.counters.cudagraph_skips == 0


def test_a_model_on_a_gpu_is_tuned_end_to_end(tmp_path):
    model, inputs = small_model()
    rec = autocompile.optimize(model, inputs, "150s", strategy="quick", output=tmp_path / "rec", progress=False)
    with torch.no_grad():
        expected = model(inputs)
    torch.testing.assert_close(rec.module(inputs), expected, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(autocompile.load(tmp_path / "rec", model)(inputs), expected, rtol=2e-2, atol=2e-2)
    assert rec.document.environment.gpus
    assert rec.document.workload.gpus == (gpu_kind(),)


class TinyKernels(nn.Module):
    def forward(self, x):
        for _ in range(200):
            x = x * 1.01 + 0.1
        return x


class LargeCopies(nn.Module):
    def forward(self, x):
        return x.add(1).mul(2).sub(3)


@pytest.mark.parametrize(
    ("model", "shape", "bound"),
    [
        (TinyKernels(), (8,), "overhead"),
        (nn.Linear(8192, 8192), (8192, 8192), "compute"),
        (LargeCopies(), (1 << 28,), "memory"),
    ],
    ids=["overhead", "compute", "memory"],
)
def test_what_bounds_a_model_on_a_gpu(model, shape, bound):
    found = autocompile.profile(model.cuda().eval(), torch.ones(*shape, device="cuda"), progress=False)
    assert found.bound == bound, found.evidence
    assert 0 < found.busy_share <= 1
    assert found.ceilings.flops_per_s > 1e12


def test_a_program_compiled_ahead_serves_on_a_gpu(bench, tmp_path):
    runner, workload, reference, _profile = bench
    laboratory = Laboratory(runner, tmp_path)
    laboratory.workload, laboratory.reference = workload, reference
    artifact = laboratory.pack(compiled())
    assert isinstance(artifact, Path), artifact
    model, inputs = small_model()
    module = autocompile.load(artifact, model)
    for batch in (1, 7, 16):
        x = torch.randn(batch, 256, device="cuda")
        with torch.no_grad():
            torch.testing.assert_close(module(x), model(x), rtol=1e-3, atol=1e-3)
            model[0].weight.mul_(1.5)
    assert module.status.calls == {"aot": 3}
    assert module(inputs.cpu().cuda()).shape == inputs.shape
    assert module.status.fallbacks == ()
