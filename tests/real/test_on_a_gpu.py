"""Code for GPUs, as far as it can be tested without one: torch's answers are made up."""

import subprocess
import sys
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from msgspec.structs import replace
from torch import nn
from torch._C._autograd import DeviceType

from autocompile.artifact.prepared import How, PreparedStep
from autocompile.core.job import Acceptance, Timing
from autocompile.core.plan import Plan
from autocompile.core.program import Program
from autocompile.core.serving import Serving
from autocompile.core.tolerance import published_tolerance
from autocompile.core.workload import TrainingEntry
from autocompile.runtime.aot import compile as aot_compile
from autocompile.runtime.aot import runtime as aot
from autocompile.runtime.aot.package import package_of
from autocompile.runtime.building import as_trained
from autocompile.runtime.eager.runtime import RUNTIME as EAGER
from autocompile.runtime.inductor import workers
from autocompile.runtime.inductor.counters import counters
from autocompile.trial import memory
from autocompile.trial.check import new_sizes, stored
from autocompile.trial.check.reference import Reference, make_reference
from autocompile.trial.check.repeatability import repeatability
from autocompile.trial.clock import devices, timing
from autocompile.trial.clock.timing import Subject, time_pairs
from autocompile.trial.profile import ceilings, kernels
from autocompile.trial.profile.counting import work_of
from autocompile.workload.call import Call
from autocompile.workload.samples import Sample
from autocompile.workload.settings import current_settings
from autocompile.workload.tf32 import products_in_tf32
from autocompile.workload.training.step import TrainingStep
from autocompile.workload.training.training import Training


class Gpu:
    """A device that is given its work, and takes its time only when it is waited for; a clock tells that."""

    def __init__(self, monkeypatch, *, each_s, launch_s=1e-5, wait_s=2e-4):
        self.now, self.waits, self.launched, self._free = 0.0, 0, 0, 0.0
        self.each_s, self.launch_s, self.wait_s = each_s, launch_s, wait_s
        row = devices.Device(self.synchronize, matrix=64, copied_bytes=1024, queues=True)
        monkeypatch.setitem(devices.DEVICES, "cuda", row)
        monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: self.now))
        monkeypatch.setattr(timing, "HostWatch", Quiet)

    def launch(self, each_s=None):
        self.launched += 1
        self.now += self.launch_s
        self._free = max(self._free, self.now) + (self.each_s if each_s is None else each_s)

    def synchronize(self):
        self.waits += 1
        self.now = max(self.now, self._free) + self.wait_s


class Quiet:
    def __init__(self, device_type):
        pass

    def begin(self):
        pass

    def disturbed(self):
        return False

    def verdict(self):
        return None


def on_gpu(call):
    return Subject(Call(call, device_type="cuda"), (Sample((), {}),), 1, "cuda")


def paired(gpu, in_a_row):
    slow, fast = on_gpu(lambda: gpu.launch(4e-4)), on_gpu(lambda: gpu.launch(1e-4))
    return time_pairs(slow, fast, Timing(0.01, 3.0, in_a_row=in_a_row), 0)


def test_calls_in_a_row_are_waited_for_once_a_block(monkeypatch):
    """Waiting takes as long after a fast call as after a slow one, so waiting for each makes the fast look slower."""
    each = paired(Gpu(monkeypatch, each_s=1e-4), in_a_row=False)
    assert each.ratio.value == pytest.approx((1e-4 + 2.1e-4) / (4e-4 + 2.1e-4), rel=0.01)
    gpu = Gpu(monkeypatch, each_s=1e-4)
    row = paired(gpu, in_a_row=True)
    assert row.ratio.value == pytest.approx(0.25, rel=0.05)
    assert row.candidate.mean_ms == pytest.approx(0.1, rel=0.05)
    assert gpu.launched > 40 * gpu.waits, "as many as a block of 25 ms takes"


def test_on_a_cpu_every_call_is_timed_all_the_same():
    ran = []
    one = Subject(Call(lambda: ran.append(1)), (Sample((), {}),), torch.get_num_threads(), "cpu")
    found = time_pairs(one, one, Timing(1.0, 0.1, in_a_row=True), 0)
    assert found.candidate.calls > 0


def test_what_a_call_takes_is_told_when_the_device_is_done(monkeypatch):
    waits = []
    monkeypatch.setitem(
        devices.DEVICES, "cuda", devices.Device(lambda: waits.append(1), matrix=64, copied_bytes=1024, queues=True)
    )
    step = Call(nn.Linear(4, 4), device_type="cuda")
    assert repeatability(step, Sample((torch.ones(2, 4),), {}), 0).call_s > 0
    assert len(waits) == 2, "before the call and after it"


class FakeAllocator:
    """Enough of torch.cuda for its memory: a peak, and pools of CUDA graphs."""

    def __init__(self, monkeypatch):
        self.peak, self.order = 0, []
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: self.order.append("wait"))
        monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", self.reset)
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: self.peak)
        monkeypatch.setattr(torch.cuda, "memory_snapshot", self.snapshot)

    def reset(self):
        self.order.append("reset")
        self.peak = 0

    def snapshot(self):
        return [
            {"segment_pool_id": (0, 0), "total_size": 1000, "allocated_size": 10},
            {"segment_pool_id": (0, 1), "total_size": 500, "allocated_size": 100},
        ]


def test_the_peak_on_a_gpu_is_that_of_calls_and_of_what_their_graphs_keep(monkeypatch):
    allocator = FakeAllocator(monkeypatch)
    allocator.peak = 10**9  # what compiling took
    memory.forget_peak("cuda")
    allocator.peak = 2000
    assert memory.peak_memory_bytes("cuda") == 2000 + 400
    assert allocator.order == ["wait", "reset", "wait"]
    memory.forget_peak("cpu")
    assert memory.peak_memory_bytes("cpu") > 10**6


def test_a_reference_that_was_loaded_holds_none_of_its_cases(monkeypatch, tmp_path):
    model, samples = nn.Linear(4, 2), (Sample((torch.randn(3, 4),), {}), Sample((torch.randn(5, 4),), {}))
    made = make_reference(Call(model), samples, variants=1, seed=0)
    made.save(tmp_path / "reference.pt", with_outputs=True)
    read = []
    load = torch.load
    monkeypatch.setattr(stored.torch, "load", lambda path, **keys: read.append(path.name) or load(path, **keys))
    loaded = Reference.load(tmp_path / "reference.pt")
    assert len(loaded.cases) == len(loaded.at_batch(2).cases) == 4
    assert len(loaded.first.cases) == 1
    assert read == ["reference.pt"]
    for own, other in zip(loaded.cases, made.cases, strict=True):
        assert torch.equal(own.expected.leaves["output"], other.expected.leaves["output"])
    assert read[1:] == [f"reference.pt.{number}" for number in range(4)]
    small = loaded.at_batch(2).cases[3]
    assert torch.equal(small.baseline.output, made.cases[3].baseline.output[:2])
    assert not loaded.mutates_inputs


def test_cuda_graphs_are_counted_by_what_they_are_of(monkeypatch):
    trees = pytest.importorskip("torch._inductor.cudagraph_trees")
    assert counters().captures == 0
    recorded = SimpleNamespace(tree_manager=SimpleNamespace(ids_to_funcs={0: "a size", 1: "another"}))
    idle = SimpleNamespace(tree_manager=None)
    monkeypatch.setattr(trees, "local", SimpleNamespace(tree_manager_containers={0: recorded, 1: idle}))
    assert counters().captures == 2


class Capturing(Call):
    """Captures a graph for each size that it has not had yet."""

    def __init__(self, model):
        super().__init__(model)
        self.sizes = {3, 9}

    def work(self, sample):
        self.sizes.add(sample.args[0].shape[0])
        return super().work(sample)


def test_a_size_that_is_captured_anew_is_no_recompile_and_is_counted(monkeypatch):
    model = nn.Linear(4, 2)
    candidate = Capturing(model)
    told = SimpleNamespace(counters=lambda: SimpleNamespace(captures=len(candidate.sizes)))
    monkeypatch.setattr(new_sizes, "runtime", lambda _name: told)
    on_cpu = SimpleNamespace(device_type="cpu")
    task = SimpleNamespace(plan=Plan(), seed=0, acceptance=Acceptance(published_tolerance("")), workload=on_cpu)
    samples = [Sample((torch.randn(size, 4),), {}) for size in (3, 9)]
    found = new_sizes.probe_unseen(candidate, Call(model), samples, task, left_s=60.0, random=False)
    assert (found.tried, found.compiled_again, found.captured, found.fault) == (1, 0, 1, "")
    again = new_sizes.probe_unseen(candidate, Call(model), samples, task, left_s=60.0, random=False)
    assert (again.tried, again.captured) == (1, 0)


def test_the_compilers_workers_are_ended_and_not_waited_for_forever(monkeypatch):
    import torch._inductor.async_compile as compiler

    ended = []
    monkeypatch.setattr(compiler, "shutdown_compile_workers", lambda: ended.append(1))
    workers.end_workers()
    assert ended == [1]
    stuck = threading.Event()
    monkeypatch.setattr(compiler, "shutdown_compile_workers", stuck.wait)
    monkeypatch.setattr(workers, "_LONGEST_S", 0.01)
    workers.end_workers()
    stuck.set()


@pytest.fixture
def faked_gpu(monkeypatch):
    """One on which kernels of 10 µs are launched every 100 µs, and every 400 µs under the profiler."""
    clock = SimpleNamespace(now=0.0, profiled=False)
    events = [
        SimpleNamespace(
            device_type=DeviceType.CUDA, is_user_annotation=False, name="kernel", cpu_parent=None,
            time_range=SimpleNamespace(start=400.0 * number, end=400.0 * number + 10),
        )
        for number in range(30)
    ]  # fmt: skip

    @contextmanager
    def profiled(activities, acc_events):
        clock.profiled = True
        yield SimpleNamespace(events=lambda: events)
        clock.profiled = False

    def call():
        clock.now += 10 * (400e-6 if clock.profiled else 100e-6)

    monkeypatch.setattr(kernels, "profile", profiled)
    monkeypatch.setattr(kernels, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    monkeypatch.setitem(devices.DEVICES, "cuda", devices.Device(lambda: None, matrix=64, copied_bytes=1024))
    return Call(call, device_type="cuda")


def test_what_kernels_cover_is_set_against_the_time_without_the_profiler(faked_gpu):
    found = kernels.kernels_of(faked_gpu, Sample((), {}), "cuda", 3)
    assert (found.per_call, found.median_us) == (10, 10.0)
    assert found.outside_share == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("device", "dtype", "matmul", "convolution", "differ"),
    [
        ("cuda", torch.float32, "none", "tf32", True),  # as torch has it by default
        ("cuda", torch.float32, "ieee", "tf32", True),
        ("cuda", torch.float32, "tf32", "tf32", False),
        ("cuda", torch.float32, "ieee", "ieee", False),
        ("cuda", torch.bfloat16, "none", "tf32", False),
        ("cpu", torch.float32, "none", "tf32", False),
    ],
)
def test_convolutions_have_a_ceiling_of_their_own_where_they_alone_are_in_tf32(
    monkeypatch, device, dtype, matmul, convolution, differ
):
    told = replace(current_settings(), precisions={"cuda.matmul": matmul, "cudnn.conv": convolution})
    monkeypatch.setattr(ceilings, "current_settings", lambda: told)
    assert ceilings.convolves_in_tf32(device, dtype) == differ


def test_the_ceiling_of_convolutions_is_a_product_in_tf32(monkeypatch, precision):
    monkeypatch.setattr(ceilings, "convolves_in_tf32", lambda _device, _dtype: True)
    monkeypatch.setattr(ceilings, "_LOOK_S", 0.0)
    seen = []
    multiply = torch.mm

    def seeing(*operands, **keywords):
        seen.append(precision.fp32_precision == "tf32")
        return multiply(*operands, **keywords)

    monkeypatch.setattr(ceilings.torch, "mm", seeing)
    monkeypatch.setitem(devices.DEVICES, "cpu", devices.Device(lambda: None, matrix=64, copied_bytes=1024))
    found = ceilings.measure_ceilings("cpu", "float32")
    assert found.convolution_flops_per_s > 0
    assert {False, True} == {*seen}
    assert seen == sorted(seen)


def test_flops_of_convolutions_are_counted_apart():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 6 * 6, 5))
    work = work_of(Call(model), Sample((torch.ones(2, 3, 8, 8),), {}))
    assert work.whole.convolution_flops == 2 * 2 * 4 * 6 * 6 * 3 * 3 * 3
    assert work.whole.flops - work.whole.convolution_flops == 2 * 2 * 4 * 6 * 6 * 5
    assert (work.whole - work.whole).convolution_flops == 0


class Precision(nn.Module):
    """Tells in which precision a GPU would compute its products."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.seen = []

    def forward(self, x):
        self.seen.append(torch.backends.cuda.matmul.fp32_precision)
        return self.layer(x)


@pytest.fixture
def precision():
    """The process's settings, put back."""
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    yield matmul
    matmul.allow_tf32 = False
    matmul.fp32_precision = before


def test_a_plan_in_tf32_has_it_during_its_calls_and_leaves_no_trace(precision):
    model, x = Precision(), torch.ones(1, 2)
    before = current_settings()
    built = EAGER.build(Call(model), Plan(float32="tf32"), (), isolate=False)
    with torch.no_grad():
        model(x)
        built(x)
        model(x)
    assert [one == "tf32" for one in model.seen] == [False, True, False]
    assert current_settings() == before
    model.forward = None
    with pytest.raises(TypeError):
        built(x)
    assert current_settings() == before, "after an exception, too"


class Seeing(torch.autograd.Function):
    """Tells in which precision products would be computed, forward and backward."""

    seen = []

    @staticmethod
    def forward(_context, x):
        Seeing.seen.append(("forward", torch.backends.cuda.matmul.fp32_precision == "tf32"))
        return x.clone()

    @staticmethod
    def backward(_context, gradient):
        Seeing.seen.append(("backward", torch.backends.cuda.matmul.fp32_precision == "tf32"))
        return gradient


def fitted(model, batch):
    return Seeing.apply(model(batch)).square().mean()


@pytest.fixture
def seen():
    Seeing.seen.clear()
    return Seeing.seen


@pytest.mark.parametrize("float32", ["tf32", ""])
def test_a_step_of_training_in_tf32_has_it_forward_and_backward(precision, seen, float32):
    given = TrainingStep(nn.Linear(3, 2), Training(loss=fitted, optimizer=torch.optim.SGD))
    step = as_trained(given, Plan(float32=float32), isolate=True)
    step.run(Sample((torch.ones(4, 3),), {}))
    assert seen == [("forward", bool(float32)), ("backward", bool(float32))]
    step.in_float64().run(Sample((torch.ones(4, 3, dtype=torch.float64),), {}))
    assert seen[2:] == [("forward", False), ("backward", False)]
    assert precision.fp32_precision != "tf32"


def test_a_prepared_step_trains_in_tf32_whole_and_in_its_parts(precision, seen):
    model = nn.Linear(3, 2)
    how = How("tf32", Plan(float32="tf32"), Serving("eager", "none"), TrainingEntry("SGD"), fitted, "cuda")
    step = PreparedStep(model, torch.optim.SGD(model.parameters()), how)
    step(torch.ones(4, 3))
    step.backward(step.loss(torch.ones(4, 3)))
    with step.autocast():
        loss = fitted(step.model, torch.ones(4, 3))
    step.backward(loss)
    assert seen == [("forward", True), ("backward", True)] * 3
    assert precision.fp32_precision != "tf32"


def test_a_program_compiled_ahead_in_tf32_is_compiled_and_called_in_it(monkeypatch, precision):
    seen = []

    def compiled(*_what):
        seen.append(precision.fp32_precision)
        return Program(0, (), "", (), (), "", (), ("code",), own={"code": "code", "code_files": ["code"]})

    def loaded(*_what):
        return lambda tensors: seen.append(precision.fp32_precision)

    monkeypatch.setattr(aot_compile, "compile_ahead", compiled)
    monkeypatch.setattr(aot, "loaded", loaded)
    for plan, expected in ((Plan(float32="tf32"), True), (Plan(), False)):
        program = aot.RUNTIME.compile_ahead(None, plan, None, (), None, "program")
        aot.RUNTIME.load(program, None, None, None)([])
        assert package_of(program).float32 == plan.float32
        assert [one == "tf32" for one in seen] == [expected, expected]
        seen.clear()
    assert precision.fp32_precision != "tf32"


@pytest.mark.parametrize("own", ["none", "ieee", "tf32"])
def test_tf32_is_put_back_to_what_was_set_when_the_last_call_ends(precision, own):
    precision.fp32_precision = own
    before = current_settings()
    with products_in_tf32():
        with products_in_tf32():
            assert precision.fp32_precision == "tf32"
        assert precision.fp32_precision == "tf32", "another call is under way"
    assert precision.fp32_precision == own
    assert current_settings() == before


PRELOADING = """
import sys, torch
from autocompile.trial import server

def start():
    if not has_gpu:
        raise RuntimeError("Found no NVIDIA driver on your system")
    if "touches_driver" in sys.modules:
        raise RuntimeError("CUDA error: initialization error")

torch.cuda.init, torch.version.cuda = start, "13.0"
for has_gpu, module in ((True, "harmless"), (True, "touches_driver"), (False, "touches_driver")):
    sys.modules.pop(module, None)
    print(server._preload([module], [sys.argv[1], *sys.path]))
has_gpu = True
print(server._preload([], list(sys.path)))
"""


def test_a_module_that_touches_the_driver_is_not_preloaded_where_there_is_a_gpu(tmp_path):
    for name in ("harmless", "touches_driver"):
        (tmp_path / f"{name}.py").write_text("")
    done = subprocess.run([sys.executable, "-c", PRELOADING, str(tmp_path)], capture_output=True, text=True, check=True)
    kept = [line == "{'preloaded': True}" for line in done.stdout.splitlines()]
    assert kept == [True, False, True, True], done.stdout
