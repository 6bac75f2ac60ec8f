"""Models converted to ONNX and run by ONNX Runtime: equal results for all sizes, and a one-line reason if it fails."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from autocompile.core.plan import Plan
from autocompile.runtime.ahead import AheadRuntime
from autocompile.runtime.base import NotLoadable, NotPackable
from autocompile.runtime.building import ahead
from autocompile.runtime.files import Files
from autocompile.runtime.guards import Guard, Refusal
from autocompile.runtime.model_watch import Watch
from autocompile.runtime.onnxruntime import graph
from autocompile.runtime.onnxruntime.kind import INEXPRESSIBLE, KIND
from autocompile.runtime.onnxruntime.library import library
from autocompile.runtime.snippet import snippet
from autocompile.workload.axes import FreeAxis
from autocompile.workload.samples import Sample

try:
    library()
except ImportError:
    pytest.skip("onnxruntime is not installed", allow_module_level=True)
pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
PLAN = Plan(runtime=KIND.name)


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 24, 3, padding=1), nn.BatchNorm2d(24)
        self.second, self.head = nn.Conv2d(24, 16, 3), nn.Linear(16, 5)

    def forward(self, x):
        return self.head(torch.relu(self.second(torch.relu(self.norm(self.first(x))))).mean((2, 3)))


class Texts(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, 16), nn.Linear(16, 50)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids, *, padding):
        hidden = self.encoder(self.embedding(ids), src_key_padding_mask=padding)
        return {"logits": self.head(hidden), "lengths": (~padding).sum(1), "hidden": (hidden, None), "width": 16}


class Applied(nn.Module):
    """A function, with what it may need."""

    def __init__(self, function):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(4.0))
        self.register_buffer("calls", torch.zeros(()))
        self.function = function

    def forward(self, *args):
        return self.function(self, *args)


def axis(name, low, high, *places):
    return FreeAxis(name, frozenset(places), (low,), low, high)


@pytest.fixture
def packed(tmp_path):
    """What compiles a model ahead, and loads it as production does: called like the model, and its program."""
    runtime = ahead(KIND.name)
    assert isinstance(runtime, AheadRuntime)

    def pack(model, *args, axes=(), plan=PLAN, **kwargs):
        program = runtime.compile_ahead(model, plan, Sample(args, kwargs), axes, tmp_path, "program0")
        guard = Guard(program, model, torch.device("cpu"))
        # The program contains its weights.
        run = runtime.load(program, Files(tmp_path), None, Watch(model))

        def called(*args, **kwargs):
            tensors = guard(args, kwargs)
            assert not isinstance(tensors, Refusal), tensors
            return run(tensors)

        return called, program

    return pack


def assert_same(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
@pytest.mark.filterwarnings("ignore")
def test_images_in_batches_of_any_size_on_any_processor(packed, tmp_path, monkeypatch):
    torch.manual_seed(0)
    model = Images().eval()
    batch = axis("batch", 1, 16, (0, 0))
    fast, program = packed(model, torch.randn(4, 3, 12, 12), axes=(batch,))
    assert not program.needs_model
    for size in (1, 4, 16):
        x = torch.randn(size, 3, 12, 12)
        assert_same(fast(x), model(x))
        assert_same(fast(x.contiguous(memory_format=torch.channels_last)), model(x))
    record = graph.session_of(program)
    assert set(program.files) == {path.name for path in tmp_path.iterdir()}
    assert record.graphs[-1].processor == ""
    monkeypatch.setattr(graph, "this_processor", lambda: "another")
    runtime = ahead(KIND.name)
    elsewhere = runtime.load(program, Files(tmp_path), None, Watch(model))
    assert_same(elsewhere([x]), model(x))
    place = str(Path(__file__).parent).encode()
    assert not any(place in path.read_bytes() for path in tmp_path.iterdir())


@torch.no_grad()
@pytest.mark.filterwarnings("ignore")
def test_texts_of_any_length_with_ids_masks_and_a_record_of_outputs(packed):
    torch.manual_seed(0)
    model = Texts().eval()

    def call(batch, length):
        padding = torch.zeros(batch, length, dtype=torch.bool)
        padding[:, length - 1] = length > 1
        return torch.randint(0, 50, (batch, length)), padding

    ids, padding = call(2, 7)
    axes = (axis("batch", 1, 8, (0, 0), (1, 0)), axis("length", 2, 40, (0, 1), (1, 1)))
    fast, program = packed(model, ids, axes=axes, padding=padding)
    assert [value["dtype"] for value in program.own["inputs"]] == ["int64", "bool"]
    for batch, length in ((2, 7), (1, 2), (8, 40)):
        ids, padding = call(batch, length)
        assert_same(fast(ids, padding=padding), model(ids, padding=padding))


@torch.no_grad()
@pytest.mark.filterwarnings("ignore")
def test_outputs_are_the_callers_own_whatever_else_runs(packed):
    """Neither an input, nor a weight, nor what an earlier call gave, nor another thread's."""
    x = torch.randn(4)
    model = Applied(lambda self, x: [x, self.weight, torch.ones(2), x.sum(), x > 0, x * self.weight]).eval()
    fast, _program = packed(model, x)
    first = fast(x.clone().requires_grad_())
    kept = [one.clone() for one in first]
    assert_same(kept, model(x))
    assert not any(one.requires_grad for one in first)
    for one in fast(x):
        one.fill_(7)
    assert_same(fast(x), kept)
    found = {}

    def many(number):
        y = torch.full((4,), float(number))
        found[number] = all(torch.equal(fast(y)[-1], y * model.weight) for _ in range(200))

    threads = [threading.Thread(target=many, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {0: True, 1: True}
    assert_same(first, kept)


@pytest.mark.filterwarnings("ignore")
def test_threads_are_as_planned_or_as_torch_has_them(packed):
    for planned, expected in ((1, 1), (3, 3), (0, torch.get_num_threads())):
        fast, program = packed(Applied(lambda self, x: x + self.weight).eval(), torch.ones(4), plan=Plan(
            runtime=KIND.name, threads=planned
        ))  # fmt: skip
        assert graph.session_of(program).threads == planned
        run = next(cell.cell_contents for cell in fast.__closure__ if hasattr(cell.cell_contents, "_session"))
        assert run._session.get_session_options().intra_op_num_threads == expected


@pytest.mark.parametrize(
    ("function", "inputs", "words", "cause"),
    [
        (
            lambda self, x: torch.searchsorted(self.weight, x),
            (torch.ones(4),),
            r"aten\.searchsorted\.Tensor has no counterpart in ONNX \(test_onnxruntime\.py:\d+ in forward\); compute",
            INEXPRESSIBLE,
        ),
        (
            lambda _self, x: (x.bfloat16() @ x.bfloat16()).float(),
            (torch.ones(4, 4),),
            r"ONNX Runtime has no MatMul \(operator set \d+\) for these dtypes here; keep the model in float32",
            INEXPRESSIBLE,
        ),
        (
            lambda _self, x: x.float() * 2,
            (torch.ones(4, dtype=torch.bfloat16),),
            r"it takes or returns a tensor\(bfloat16\), but calls go through NumPy, which does not have this type",
            INEXPRESSIBLE,
        ),
        (
            lambda self, x: x + self.calls.add_(1),
            (torch.ones(4),),
            "a call changes calls, which an ONNX graph cannot do",
            INEXPRESSIBLE,
        ),
        (
            lambda _self, x: x.add_(1) * 2,
            (torch.ones(4),),
            "a call changes .*, which an ONNX graph cannot do",
            INEXPRESSIBLE,
        ),
        (lambda self: self.weight * 2, (), "it is called without a tensor", ""),
    ],
    ids=["operator", "kernel", "dtype", "buffer", "argument", "tensors"],
)
@pytest.mark.filterwarnings("ignore")
def test_what_is_not_possible_is_said_in_one_line(packed, function, inputs, words, cause, capfd):
    with pytest.raises(NotPackable, match=f"^{words}") as refused:
        packed(Applied(function).eval(), *inputs)
    assert len(str(refused.value).splitlines()) == 1
    assert refused.value.cause == cause
    assert capfd.readouterr() == ("", "")


@pytest.mark.filterwarnings("ignore")
def test_a_file_that_is_no_graph_is_not_loadable(packed, tmp_path):
    _fast, program = packed(Applied(lambda self, x: x + self.weight).eval(), torch.ones(4))
    (tmp_path / program.files[0]).write_bytes(b"no graph")
    with pytest.raises(NotLoadable):
        ahead(KIND.name).load(program, Files(tmp_path), None, Watch(None))


FORKED = """
import os, psutil, sys, torch
from autocompile.core.plan import Plan
from autocompile.runtime.building import ahead, build
from autocompile.workload.call import Call
from autocompile.workload.samples import Sample

threads = psutil.Process().num_threads()
ahead("onnxruntime").prepare()
assert psutil.Process().num_threads() == threads
assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
if not os.fork():
    model, x = torch.nn.Linear(64, 64).eval(), torch.randn(256, 64)
    built = build(Call(model), Plan(runtime="onnxruntime", threads=2), [Sample((x,), {})])
    torch.testing.assert_close(built(x), Call(model)(x))
    os._exit(0)
assert os.wait()[1] == 0
"""
SERVING = """
import pickle, sys, torch
from pathlib import Path
from autocompile.runtime.building import ahead
from autocompile.runtime.files import Files

program, x, y = pickle.loads(Path("kept.pickle").read_bytes())
torch.testing.assert_close(ahead("onnxruntime").load(program, Files(Path.cwd()), None, None)([x]), y)
assert not {"onnx", "onnxscript", "torch.onnx._internal.exporter._core"} & set(sys.modules)
"""


def ended(code, **options):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, **options)
    return done.returncode, done.stdout + done.stderr


def test_what_is_imported_ahead_survives_a_fork_and_reports_to_nobody():
    around = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    assert ended(FORKED, env=around) == (0, "")


@pytest.mark.filterwarnings("ignore")
def test_serving_needs_nothing_that_converting_needs(packed, tmp_path):
    import pickle

    model, x = nn.Linear(4, 4).eval(), torch.randn(2, 4)
    _fast, program = packed(model, x)
    (tmp_path / "kept.pickle").write_bytes(pickle.dumps((program, x, model(x).detach())))
    assert ended(SERVING, cwd=tmp_path) == (0, "")


@torch.no_grad()
@pytest.mark.filterwarnings("ignore")
def test_the_snippet_computes_the_same():
    model = Texts().eval()
    scope = {"model": model}
    exec(snippet(PLAN, device_type="cpu", is_module=True), scope)
    for length in (3, 5):
        ids, padding = torch.randint(0, 50, (2, length)), torch.zeros(2, length, dtype=torch.bool)
        assert_same(scope["run"](ids, padding=padding), model(ids, padding=padding))
