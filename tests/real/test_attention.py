"""Attention on a CPU as separate products: which kernels run, in which context, and what is computed."""

import os
import subprocess
import sys
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from autocompile.core.plan import Plan
from autocompile.runtime.building import ahead, as_trained, build
from autocompile.runtime.guarded import Guarded
from autocompile.runtime.inductor.settings import compiled
from autocompile.runtime.recomputation import recompute
from autocompile.trial.profile.kernels import kernels_of
from autocompile.workload.attention import attention_as
from autocompile.workload.call import Call
from autocompile.workload.samples import Sample
from autocompile.workload.training.step import TrainingStep
from autocompile.workload.training.training import Training

pytestmark = pytest.mark.usefixtures("one_thread")
MATH = Plan(attention="math")
CACHED = """
import sys
import torch
from torch._dynamo.utils import counters
from autocompile.workload.attention import attention_as
q = torch.randn(1, 2, 8, 8)
with attention_as(sys.argv[1]):
    torch.compile(torch.nn.functional.scaled_dot_product_attention)(q, q, q)
print(counters["aot_autograd"]["autograd_cache_hit"])
"""


class Attending(nn.Module):
    """Self-attention in two heads; `fused` is whether torch's function computes it."""

    def __init__(self, fused=True):
        super().__init__()
        self.fused, self.inner, self.outer = fused, nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = self.inner(x).view(*x.shape[:2], 3, 2, 8).permute(2, 0, 3, 1, 4)
        if self.fused:
            mixed = functional.scaled_dot_product_attention(q, k, v)
        else:
            mixed = (q @ k.transpose(-1, -2) / 8**0.5).softmax(-1) @ v
        return self.outer(mixed.transpose(1, 2).flatten(2))


def fused_kernels(run):
    """The fused kernels for attention that `run` calls."""
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as recorded:
        run()
    names = [event.name for event in recorded.events()]
    return sum(name.startswith("aten::_scaled_dot_product_flash_attention") for name in names)


def attend():
    q = torch.randn(1, 2, 8, 8)
    return functional.scaled_dot_product_attention(q, q, q)


@pytest.fixture
def call():
    torch.manual_seed(0)
    return Call(Attending().eval()), Sample((torch.randn(4, 12, 16),), {})


def fitted(model, batch):
    return functional.mse_loss(model(batch), batch)


@pytest.fixture
def step():
    torch.manual_seed(0)
    training = Training(loss=fitted, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    return TrainingStep(Attending(), training), Sample((torch.randn(4, 12, 16),), {})


def test_the_fused_kernel_is_not_used_in_the_context_and_again_after_it():
    assert fused_kernels(attend) == 1
    with attention_as("math"), attention_as("math"):
        assert fused_kernels(attend) == 0
    assert fused_kernels(attend) == 1
    with attention_as(""):
        assert fused_kernels(attend) == 1


def test_settings_of_the_user_are_left_as_they_are():
    torch.compiler.config.cache_key_tag = "own"
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_math_sdp(False)
    try:
        with attention_as("math"):
            assert fused_kernels(attend) == 0
            assert torch.compiler.config.cache_key_tag == "ownattention=math"
        assert not torch.backends.cuda.flash_sdp_enabled()
        assert not torch.backends.cuda.math_sdp_enabled()
        assert torch.compiler.config.cache_key_tag == "own"
    finally:
        torch.backends.cuda.enable_flash_sdp(True)
        torch.backends.cuda.enable_math_sdp(True)
        torch.compiler.config.cache_key_tag = ""


def test_the_compilers_cache_tells_both_ways_apart(tmp_path):
    """Torch's own keys do not: a program with the fused kernel would be found."""
    (tmp_path / "compile.py").write_text(CACHED)
    for attention, hits in (("", 0), ("math", 0), ("math", 1)):
        command = [sys.executable, "compile.py", attention]
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
        done = subprocess.run(command, check=True, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.stdout.split() == [str(hits)], done.stderr


def test_it_is_restored_when_the_last_of_several_threads_has_left():
    entered, leave = threading.Barrier(3), [threading.Event(), threading.Event()]

    def use(own):
        with attention_as("math"):
            entered.wait(30)
            leave[own].wait(30)

    threads = [threading.Thread(target=use, args=(own,)) for own in range(2)]
    for thread in threads:
        thread.start()
    entered.wait(30)
    for thread, event, allowed in zip(threads, leave, (False, True), strict=True):
        event.set()
        thread.join()
        assert torch.backends.cuda.flash_sdp_enabled() == allowed


def test_the_profile_tells_which_share_of_a_call_the_fused_kernel_takes(call, step):
    own, sample = call
    assert 0 < kernels_of(own, sample, "cpu", 2).attention_share < 1
    assert kernels_of(Call(Attending(fused=False)), sample, "cpu", 2).attention_share == 0
    training, batch = step
    assert 0 < kernels_of(training, batch, "cpu", 2).attention_share < 1


@pytest.mark.parametrize("plan", [MATH, compiled(backend="aot_eager")], ids=["eager", "compiled"])
def test_a_call_is_built_with_it(plan, call):
    own, sample = call
    for attention, kernels in (("", 1), ("math", 0)):
        torch._dynamo.reset()
        built = build(own, Plan(plan.runtime, plan.settings, attention=attention), [sample])
        torch.testing.assert_close(built(*sample.args), own(*sample.args), rtol=1e-5, atol=1e-6)
        assert fused_kernels(lambda built=built: built(*sample.args)) == kernels
    assert torch.backends.cuda.flash_sdp_enabled()


@pytest.mark.parametrize("plan", [MATH, compiled(backend="aot_eager")], ids=["eager", "compiled"])
def test_a_training_step_is_built_with_it(plan, step):
    given, sample = step
    observed = {}
    for attention, kernels in (("", 2), ("math", 0)):  # forward and backward
        torch._dynamo.reset()
        trained = as_trained(given, Plan(plan.runtime, plan.settings, attention=attention))
        observed[attention] = trained.run(sample), [one.detach().clone() for one in trained.module.parameters()]
        assert fused_kernels(lambda trained=trained: trained.run(sample)) == kernels
    torch.testing.assert_close(observed["math"], observed[""], rtol=1e-4, atol=1e-5)


def test_a_loop_that_calls_backward_itself_recomputes_with_it(step):
    _given, sample = step
    model = nn.Sequential(Attending())
    recompute(model, ["0"])
    with attention_as("math"):
        loss = fitted(model, sample.args[0])
    assert fused_kernels(loss.backward) == 0
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")  # torch's own exporter of itself
def test_a_program_that_is_compiled_ahead_has_it(call, tmp_path):
    own, sample = call
    for attention, is_fused in (("", True), ("math", False)):
        plan = Plan("aot", attention=attention)
        program = ahead("aot").compile_ahead(own.model, plan, sample, (), tmp_path, f"program{attention}")
        serve = Guarded([program], ahead("aot").load, tmp_path, own.model, torch.device("cpu"))
        torch.testing.assert_close(serve(*sample.args), own(*sample.args), rtol=1e-5, atol=1e-6)
        # The program calls the kernel by its name in torch's C interface, which the profiler does not see.
        assert any(b"flash_attention" in (tmp_path / name).read_bytes() for name in program.files) == is_fused
