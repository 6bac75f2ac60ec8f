"""Programs whose calls are replayed as a CUDA graph; a stand-in for torch's graphs repeats the captured work."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

from autocompile.artifact.serving import NoModel, ProgramServer, Tally
from autocompile.core.plan import Plan
from autocompile.core.serving import Serving
from autocompile.runtime.aot import runner
from autocompile.runtime.aot.binding import Binding
from autocompile.runtime.aot.capturable import check_calls, check_weights
from autocompile.runtime.aot.captured import Captured
from autocompile.runtime.aot.compile import compile_ahead
from autocompile.runtime.aot.kind import KIND
from autocompile.runtime.aot.package import Package, Weight
from autocompile.runtime.aot.runner import Code, Runners
from autocompile.runtime.base import NotLoadable, NotPackable
from autocompile.runtime.files import Files
from autocompile.runtime.model_watch import Watch
from autocompile.workload.axes import FreeAxis
from autocompile.workload.samples import Sample

AWAY = torch.device("meta")


class Stream:
    """Keeps the order of what it was told to wait for."""

    def __init__(self, gpu, name):
        self.gpu, self.name = gpu, name

    def wait_stream(self, other):
        self.gpu.waits.append((self.name, other.name))


class Gpu:
    """As much of torch.cuda as captures; the streams of threads are by thread, as torch's are."""

    def __init__(self, monkeypatch):
        self.waits, self.graphs, self.refuses, self.local = [], [], "", threading.local()
        self.default, self.capturing, self.device = Stream(self, "default"), None, None
        gpu = self

        class Graph:
            def __init__(self):
                self.work = []
                gpu.graphs.append(self)

            def replay(self):
                for again in self.work:
                    again()

        for name, value in {
            "Stream": lambda: Stream(self, "aside"), "current_stream": lambda _device=None: self.current(),
            "set_stream": self.put_back, "stream": self.on, "device": self.on_device, "CUDAGraph": Graph,
            "graph": self.captures,
        }.items():  # fmt: skip
            monkeypatch.setattr(torch.cuda, name, value)

    def current(self):
        return getattr(self.local, "stream", self.default)

    def put_back(self, stream):
        assert self.device is not None, "torch makes a stream's device the current one, too"
        self.set(stream)

    def set(self, stream):
        self.local.stream = stream

    @contextmanager
    def on(self, stream):
        before = self.current()
        self.set(stream)
        yield
        self.set(before)

    @contextmanager
    def on_device(self, device):
        before, self.device = self.device, device
        yield
        self.device = before

    @contextmanager
    def captures(self, graph, *, stream, capture_error_mode):
        assert capture_error_mode == "thread_local", "other threads are not disturbed"
        before, self.capturing = self.current(), graph
        self.set(stream)
        try:
            yield
        finally:
            self.capturing = None
            if self.refuses:  # and the stream stays the current one, as torch's does
                raise RuntimeError(f"{self.refuses}\nmore")
        self.set(before)


class Program:
    """Multiplies by its weight, into memory that is the same at each replay."""

    def __init__(self, gpu, weight=2.0):
        self.gpu, self.weight, self.runs = gpu, torch.tensor(weight), 0

    def run(self, tensors):
        self.runs += 1
        (x,), output = tensors, torch.empty_like(tensors[0])

        def compute():
            output.copy_(x * self.weight)

        compute()
        if self.gpu.capturing:
            self.gpu.capturing.work.append(compute)
        return [output]


@pytest.fixture
def gpu(monkeypatch):
    return Gpu(monkeypatch)


def test_it_is_captured_once_and_replayed_on_the_values_of_each_call(gpu):
    program = Program(gpu)
    call = Captured(program.run)
    given = [torch.full((2,), float(n)) for n in range(3)]
    outputs = [call([x])[0] for x in given]
    assert [output.tolist() for output in outputs] == [[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]], "each is the caller's own"
    assert [x.tolist() for x in given] == [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]
    assert len(gpu.graphs) == 1
    program.weight.fill_(5.0)
    assert call([given[1]])[0].tolist() == [5.0, 5.0], "weights are followed where they lie"
    assert program.runs == 3, "twice before, once to capture"
    assert gpu.current() is gpu.default
    assert gpu.waits == [("aside", "default"), ("default", "aside")]


def test_every_thread_is_served_and_a_call_on_another_stream_waits_for_the_one_before(gpu):
    call = Captured(Program(gpu).run)
    call([torch.zeros(2)])
    gpu.waits.clear()
    with gpu.on(Stream(gpu, "own")):
        assert call([torch.ones(2)])[0].tolist() == [2.0, 2.0]
        call([torch.ones(2)])
    assert gpu.waits == [("own", "default")]
    call([torch.ones(2)])
    assert gpu.waits[1:] == [("default", "own")]
    with ThreadPoolExecutor(4) as pool:
        many = list(pool.map(lambda n: call([torch.full((2,), float(n))])[0].tolist(), range(64)))
    assert many == [[2.0 * n, 2.0 * n] for n in range(64)]
    assert len(gpu.graphs) == 1


def test_what_was_captured_in_inference_mode_serves_outside_of_it(gpu):
    call = Captured(Program(gpu).run)
    with torch.inference_mode():
        assert call([torch.ones(2)])[0].is_inference()
    assert call([torch.full((2,), 3.0)])[0].tolist() == [6.0, 6.0]


def test_gaps_between_elements_stay(gpu):
    seen = []
    call = Captured(lambda tensors: seen.append(tensors[0].stride()) or Program(gpu).run(tensors))
    gaps = torch.arange(12.0).view(3, 4)[:, ::2]
    assert torch.equal(call([gaps])[0], gaps * 2)
    assert {*seen} == {gaps.stride()}


def test_what_cannot_be_captured_is_told_at_each_call_and_tried_once(gpu):
    program = Program(gpu)
    call = Captured(program.run)
    gpu.refuses = "CUDA error: operation not permitted when stream is capturing"
    for _ in range(2):
        with pytest.raises(
            NotLoadable, match="cannot be captured as a CUDA graph: CUDA error: operation not permitted when stream is"
        ):
            call([torch.ones(2)])
        assert gpu.current() is gpu.default
    assert program.runs == 3


@pytest.mark.parametrize(
    ("fault", "cause"),
    [(RuntimeError("not permitted"), "capture"), (torch.cuda.OutOfMemoryError("CUDA out of memory"), "")],
)
def test_whether_others_must_fail_alike_is_told(gpu, fault, cause):
    def run(tensors):
        if gpu.capturing:
            raise fault
        return tensors

    with pytest.raises(NotLoadable, match=str(fault)) as raised:
        Captured(run)([torch.ones(2)])
    assert raised.value.cause == cause


def test_what_went_wrong_within_is_told_and_not_that_the_capture_could_not_be_ended(gpu):
    program = Program(gpu)

    def run(tensors):
        if gpu.capturing:
            raise RuntimeError("Cannot copy between CPU and CUDA tensors during CUDA graph capture")
        return program.run(tensors)

    gpu.refuses = "CUDA error: operation failed due to a previous error during capture"
    with pytest.raises(NotLoadable, match="Cannot copy between CPU and CUDA tensors"):
        Captured(run)([torch.ones(2)])
    assert gpu.current() is gpu.default


class Loader:
    """As torch's own class: what it was made with."""

    made = []

    def __init__(self, package, name, run_single_threaded, num_runners, device_index):
        Loader.made.append((run_single_threaded, num_runners, device_index))
        self.run = None

    def load_constants(self, constants, **_how):
        self.constants = constants


@pytest.fixture
def code(gpu, monkeypatch, tmp_path):
    """Code of a program that is captured, whose runners multiply by the constant that they were given."""

    class Running(Loader):
        def load_constants(self, constants, **how):
            super().load_constants(constants, **how)
            program = Program(gpu)
            program.weight = constants["model.weight"]
            self.run = program.run

    Loader.made.clear()
    (tmp_path / "code").write_text("")
    monkeypatch.setattr(runner.torch._C._aoti, "AOTIModelPackageLoader", Running)
    return lambda **fields: Code(Package("code", ("code",), **fields), Files(tmp_path))


def test_what_is_captured_is_run_by_one_runner_that_asks_no_events(code):
    Runners(code(is_captured=True), 3)
    Runners(code(), -1)
    assert Loader.made == [(True, 1, 3)] * 2 + [(False, runner._RUNNERS, -1)] * 2


@pytest.mark.parametrize(("current", "asked"), [(1, []), (0, [1])])
def test_a_program_runs_on_its_own_gpus_stream_whichever_is_current(code, gpu, monkeypatch, current, asked):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    told = []

    @contextmanager
    def device(index):
        told.append(index)
        yield

    monkeypatch.setattr(torch.cuda, "device", device)
    constants = {"model.weight": torch.tensor(2.0)}
    holder = nn.Identity()
    assert Runners(code(), 1).bound(constants, holder)([torch.ones(1)])[0].tolist() == [2.0]
    assert told == asked
    assert Runners(code(), -1).bound(constants, holder)([torch.ones(1)])[0].tolist() == [2.0]
    assert told == asked, "nothing is asked of a GPU on a CPU"


class Scales(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return x * self.weight


@torch.no_grad()
def test_weights_that_were_replaced_are_captured_anew(gpu, code):
    package = Package("code", ("code",), weights=(Weight("model.weight", "weight", "float32", (), ()),))
    model, runners, x = Scales(), Runners(code(is_captured=True), -1), [torch.ones(2)]
    watch = Watch(model)

    def bound():
        return Binding(package, None, runners, model, watch, {}, {})

    first = bound()
    assert [first.run(x)[0].tolist(), first.run(x)[0].tolist()] == [[2.0, 2.0]] * 2
    model.weight.fill_(3.0)
    assert first.is_current()
    assert first.run(x)[0].tolist() == [3.0, 3.0]
    model.weight = nn.Parameter(torch.tensor(7.0))
    watch.changed()  # which is asked before each call
    assert not first.is_current()
    assert bound().run(x)[0].tolist() == [7.0, 7.0]
    assert len(gpu.graphs) == 2


def test_a_program_that_cannot_be_captured_is_served_eager_and_told(gpu):
    model, tally = Scales(), Tally()
    gpu.refuses = "CUDA error"

    def eager(args, _kwargs):
        return model(*args)

    call = Captured(Program(gpu).run)
    programs = [(lambda args, _kwargs: list(args), call)]
    server = ProgramServer(programs, Watch(model), NoModel(), eager, tally, Serving("aot", "load"), "aot")
    assert server((torch.ones(2),), {}).tolist() == [2.0, 2.0]
    assert "its calls cannot be captured as a CUDA graph" in tally.refusals[0][0]


AXIS = FreeAxis("n0", frozenset({(0, 0)}), (2, 4), 2, 16)


@pytest.mark.parametrize(
    ("arguments", "axes", "said"),
    [
        ((torch.ones(2, device=AWAY),), (AXIS,), "the calls differ in size"),
        ((torch.ones(2, device=AWAY), torch.ones(2)), (), "an argument is on the CPU"),
        ((3,), (), "needs a tensor among the arguments"),
    ],
)
def test_calls_that_a_graph_cannot_serve_are_refused(arguments, axes, said):
    with pytest.raises(NotPackable, match=said):
        check_calls(Sample(arguments, {}), axes)
    check_calls(Sample((torch.ones(2, device=AWAY), 3), {}), ())


def test_nothing_is_compiled_of_what_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("autocompile.runtime.aot.compile.exported", None)
    plan = Plan("aot", {"options": {"triton.cudagraphs": True}})
    with pytest.raises(NotPackable, match="is on the CPU"):
        compile_ahead(Scales(), plan, Sample((torch.ones(2),), {}), (), Path(tmp_path), "program0")


def test_weights_that_a_graph_cannot_follow_are_refused():
    weights = [Weight("model.a", "a", "float32", (), (), device_type=kind) for kind in ("cuda", "cpu")]
    check_weights(weights[:1])
    with pytest.raises(NotPackable, match="a is on the CPU; move it to the GPU"):
        check_weights(weights)


def test_the_snippet_captures_as_well(gpu, monkeypatch):
    own = KIND.lines(Plan("aot", {"options": {"triton.cudagraphs": True, "freezing": True}}, sizes="fixed"))
    text = "\n".join(own.setup)
    assert "inductor_configs={'freezing': True}" in text
    assert "captured(torch._inductor.aoti_load_package(package, run_single_threaded=True), args, kwargs)" in text
    found = {"torch": torch}
    exec(text.partition("import torch._inductor")[0], found)
    program = Program(gpu)

    @contextmanager
    def captures(graph, *, stream):
        with gpu.captures(graph, stream=stream, capture_error_mode="thread_local"):
            yield

    monkeypatch.setattr(torch.cuda, "graph", captures)
    call = found["captured"](lambda x, *, scale: program.run([x])[0], (torch.zeros(2),), {"scale": 3})
    outputs = [call(torch.full((2,), float(n)), scale=3) for n in range(3)]
    assert [output.tolist() for output in outputs] == [[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]]
    assert "captured" not in "\n".join(KIND.lines(Plan("aot")).setup)
