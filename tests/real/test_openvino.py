"""Programs of OpenVINO: their inputs, their outputs, and models that cannot be converted."""

import os
import subprocess
import sys
import threading
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from autocompile.core.plan import Plan
from autocompile.runtime.ahead import AheadRuntime
from autocompile.runtime.base import NotLoadable, NotPackable
from autocompile.runtime.building import ahead, build
from autocompile.runtime.files import Files
from autocompile.runtime.guarded import Guarded
from autocompile.runtime.openvino.processor import computes_in
from autocompile.runtime.openvino.results import result
from autocompile.runtime.snippet import snippet
from autocompile.workload.axes import FreeAxis
from autocompile.workload.call import Call
from autocompile.workload.samples import Sample

# OpenVINO is not imported here, because a plain import enables its telemetry.
pytestmark = pytest.mark.skipif(find_spec("openvino") is None, reason="OpenVINO is not installed")
OPENVINO = Plan(runtime="openvino")


def axis(name, low, high, *places):
    return FreeAxis(name, frozenset(places), (low, high), low, high)


@pytest.fixture
def packed(tmp_path):
    """Compiles a model for calls like `args`, and gives its program and what serves it as it was loaded."""

    def pack(model, *args, axes=(), plan=OPENVINO, **kwargs):
        own = ahead(plan.runtime)
        assert isinstance(own, AheadRuntime)
        program = own.compile_ahead(model.eval(), plan, Sample(args, kwargs), axes, tmp_path, "program")
        return program, Guarded([program], own.load, tmp_path, None, torch.device("cpu"))

    return pack


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.head = nn.Linear(8, 4)

    def forward(self, images):
        return self.head(self.features(images).flatten(1))


class Text(nn.Module):
    """Its output is a dict, of which two are one tensor and one is no tensor."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, ids, keep):
        hidden = self.encoder(self.embedding(ids), src_key_padding_mask=~keep)
        pooled = (hidden * keep[..., None]).sum(1) / keep.sum(1, keepdim=True)
        return {"hidden": hidden, "states": (hidden,), "pooled": pooled, "best": hidden.argmax(-1), "kind": "text"}


class Applied(nn.Module):
    """A function as a model with a parameter and a buffer."""

    def __init__(self, function, *parts):
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)
        self.weight = nn.Parameter(torch.randn(4, 4))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, *args):
        return self.function(self, *args)


def test_images_in_batches_of_any_size_in_either_layout(packed):
    torch.manual_seed(0)
    model = Images()
    program, serve = packed(model, torch.randn(4, 3, 16, 16), axes=[axis("n0", 1, 16, (0, 0))])
    assert not program.needs_model
    for size in (1, 3, 16):
        x = torch.randn(size, 3, 16, 16)
        kept = x.clone()
        torch.testing.assert_close(serve(x), Call(model)(x), rtol=1e-4, atol=1e-5)
        assert torch.equal(x, kept)
    x = torch.randn(5, 3, 16, 16).to(memory_format=torch.channels_last)
    torch.testing.assert_close(serve(x), Call(model)(x), rtol=1e-4, atol=1e-5)
    with pytest.raises(NotPackable, match="has shape"):
        serve(torch.randn(17, 3, 16, 16))


def test_text_of_any_length_with_integers_and_masks(packed):
    torch.manual_seed(0)
    model = Text()

    def call(length):
        keep = torch.ones(2, length, dtype=torch.bool)
        keep[1, 2:] = False
        return torch.randint(50, (2, length)), keep

    _program, serve = packed(model, *call(8), axes=[axis("n0", 2, 40, (0, 1), (1, 1))])
    for length in (2, 9, 40):
        ids, keep = call(length)
        found, expected = serve(ids, keep), Call(model)(ids, keep)
        assert found["states"][0] is found["hidden"]
        assert found.keys() == expected.keys()
        assert found["kind"] == "text"
        for name in ("pooled", "best"):
            torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=1e-5)


def test_outputs_that_are_arguments_or_constants_or_kept_are_the_callers_own(packed):
    model = Applied(lambda self, x, unused, y: (x, self.weight, x.relu(), (x + y).view(-1)))
    _program, serve = packed(model, *torch.randn(3, 4, 4))
    calls = [list(torch.randn(3, 4, 4)) for _ in range(3)]
    expected = [[one.clone() for one in Call(model)(*call)] for call in calls]
    found = [serve(*call) for call in calls]
    for call, outputs, wanted in zip(calls, found, expected, strict=True):
        torch.testing.assert_close(list(outputs), wanted)
        outputs[0].zero_()
        assert call[0].any()
        assert not any(output.requires_grad for output in outputs)


@pytest.mark.parametrize("plan", [OPENVINO, Plan(runtime="openvino", autocast="bfloat16")], ids=["f32", "bf16"])
def test_large_outputs_are_the_callers_own_whatever_their_sizes(packed, plan):
    """Convolutions, matrix products and images that are outputs, inputs and both."""
    if not computes_in(plan.autocast):
        pytest.skip("this processor does not compute in it")
    torch.manual_seed(0)
    enlarge, mix = nn.Conv2d(4, 64, 3, padding=1), nn.Linear(32, 512)

    def function(_self, x):
        features = enlarge(x)
        return features, x, mix(x), features.relu(), mix(x).flatten(1), x.flatten(1), x * 1.0

    model = Applied(function, enlarge, mix)
    axes = [axis("n0", 1, 16, (0, 0))]
    program, serve = packed(model, torch.randn(4, 4, 32, 32), axes=axes, plan=plan)
    computed = program.own["computed"]
    assert any(computed)
    assert not all(computed)
    calls = [torch.randn(size, 4, 32, 32) for size in (4, 8, 8, 1, 16, 16, 2, 2)]
    kept = [call.clone() for call in calls]
    found = [serve(call) for call in calls]
    tolerance = 1e-4 if plan is OPENVINO else 0.05
    for call, before, outputs in zip(calls, kept, found, strict=True):
        assert torch.equal(call, before)
        wanted = Call(model)(call)
        assert outputs[0].nbytes > 2**18 or len(call) == 1
        for output, expected in zip(outputs, wanted, strict=True):
            torch.testing.assert_close(output, expected, rtol=tolerance, atol=tolerance)
    places = [output.data_ptr() for outputs in found for output in outputs]
    assert len(set(places)) == len(places)
    for outputs in found:
        for output in outputs:
            output.zero_()
    assert all(torch.equal(call, before) for call, before in zip(calls, kept, strict=True))


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (lambda _self, x, scale: (x * scale, scale + 1), (torch.randn(4), torch.tensor(2.5))),
        (lambda _self, x: (x + 3, x.sum(), x.to(torch.float32)), (torch.arange(5),)),
        (lambda _self, x: (~x, x.any()), (torch.tensor([True, False]),)),
        (lambda _self, x: x @ x, (torch.randn(4, 4).bfloat16(),)),
        (lambda _self, x: x.half() + 1, (torch.arange(4.0),)),
        (lambda _self, x: torch.nonzero(x > 0), (torch.randn(4, 4),)),
        (lambda self, x: self.weight * x.shape[0], (torch.randn(3),)),
        (
            lambda _self, x, to, ids: (x.index_add(0, to, x + 1, alpha=2), ids.index_add(-1, to, ids)),
            (torch.randn(3, 4), torch.tensor([2, 0, 2]), torch.arange(6).reshape(2, 3)),
        ),
    ],
    ids=["number", "integers", "booleans", "bfloat16", "float16", "size by values", "no tensor used", "index_add"],
)
def test_it_takes_and_gives(function, args, packed):
    torch.manual_seed(0)
    model = Applied(function)
    _program, serve = packed(model, *args)
    torch.testing.assert_close(serve(*args), Call(model)(*args))


def _counting(self, x):
    self.count.add_(1)
    return x + self.count


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            lambda self, x: torch.linalg.inv(x) @ self.weight,
            "OpenVINO does not support aten.linalg_inv_ex.default; write it",
        ),
        (lambda _self, x: torch.view_as_real(torch.complex(x, x)), "OpenVINO does not support aten.complex.default"),
        (_counting, "it changes its buffer count, which OpenVINO's program cannot do"),
        (lambda _self, x: x.add_(1), "it changes an argument in place"),
    ],
    ids=["operator", "complex", "buffer", "argument"],
)
def test_what_cannot_be_converted_is_said_in_a_line(function, words, packed):
    with pytest.raises(NotPackable) as raised:
        packed(Applied(function), torch.randn(4, 4))
    assert str(raised.value).startswith(words)
    assert "\n" not in str(raised.value)
    assert raised.value.cause == "model"


def test_integers_beyond_32_bits_are_refused(packed):
    model = Applied(lambda _self, x: x + 1)
    with pytest.raises(NotPackable, match="computes integers in 32 bits"):
        packed(model, torch.tensor([2**31, 0]))
    with pytest.raises(NotPackable, match="computes integers in 32 bits"):
        packed(Applied(lambda _self, x: x.index_put((x % 2,), x, accumulate=True)), torch.tensor([2**29, 1]))
    with pytest.raises(NotPackable, match="computes integers in 32 bits"):
        packed(Applied(lambda _self, x: x.new_zeros(3).index_add_(0, x % 3, x, alpha=9)), torch.tensor([2**14, 1]))
    with pytest.raises(NotPackable, match="it multiplies integers of a call"):
        packed(Applied(lambda _self, x: x * 1000003 % 1009), torch.tensor([5, 6]))
    _program, serve = packed(model, torch.tensor([2**29, -(2**29)]))
    assert serve(torch.tensor([5, 6])).tolist() == [6, 7]
    with pytest.raises(NotLoadable, match="computes integers in 32 bits"):
        serve(torch.tensor([5, 2**31]))
    assert serve(torch.tensor([6, 7])).tolist() == [7, 8]


def test_indices_may_be_large_where_others_are_added(packed):
    ids = torch.tensor([100_000, 7, 100_000])
    counting = Applied(lambda _self, ids: torch.zeros(100_001).index_add(0, ids, torch.ones(3), alpha=0.5))
    _program, serve = packed(counting, ids)
    torch.testing.assert_close(serve(ids), Call(counting)(ids))


def _buckets(_self, ids):
    """Relative positions in buckets, as T5 computes them: the integers come from sizes, not from the call's values."""
    positions = torch.arange(ids.shape[1])
    distance = positions[None, :] - positions[:, None]
    return (distance > 0).to(torch.long) * 16 + distance.abs().clamp(max=15) * torch.ones_like(ids[:1])


def _positions(_self, ids):
    """Positions that skip padding, as RoBERTa counts them."""
    mask = ids.ne(1).int()
    return (torch.cumsum(mask, dim=1).type_as(mask) * mask).long() + 1


@pytest.mark.parametrize("function", [_buckets, _positions])
def test_integers_that_come_from_sizes_or_conditions_may_be_multiplied(function, packed):
    model, ids = Applied(function), torch.tensor([[5, 7, 1, 1], [4, 2**31 - 1, 9, 1]])
    _program, serve = packed(model, ids)
    other = torch.tensor([[1, 1, 3, 8], [2, 6, 1, 5]])
    for one in (ids, other):
        torch.testing.assert_close(serve(one), Call(model)(one))


def test_several_threads_call_at_once(packed):
    torch.manual_seed(0)
    model = Images()
    _program, serve = packed(model, torch.randn(2, 3, 16, 16), axes=[axis("n0", 1, 8, (0, 0))])
    calls = [torch.randn(size % 8 + 1, 3, 16, 16) for size in range(24)]
    expected = [Call(model)(x) for x in calls]
    found = {}

    def work(own):
        for number in range(own, len(calls), 3):
            found[number] = serve(calls[number])

    threads = [threading.Thread(target=work, args=(own,)) for own in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, wanted in enumerate(expected):
        torch.testing.assert_close(found[number], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_reduced_dtype_is_taken_or_refused_and_none_is_taken_unasked(dtype, packed):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8)), torch.randn(32, 256)
    exact = Call(model)(x)
    _program, serve = packed(model, x)
    assert (serve(x) - exact).abs().max() < 1e-5
    reduced = Plan(runtime="openvino", autocast=dtype)
    if not computes_in(dtype):
        with pytest.raises(NotPackable, match="on this processor, not in"):
            packed(model, x, plan=reduced)
        return
    _program, serve = packed(model, x, plan=reduced)
    found = serve(x)
    assert found.dtype is torch.float32
    assert 1e-5 < (found - exact).abs().max() < 0.05


def test_it_computes_in_as_many_threads_as_the_plan_says(packed):
    program, serve = packed(nn.Linear(4, 4), torch.randn(2, 4), plan=Plan(runtime="openvino", threads=1))
    assert program.own["threads"] == 1
    ((_guard, run),) = serve._programs
    assert run._requests._compiled.get_property("INFERENCE_NUM_THREADS") == 1
    assert run._requests._compiled.get_property("NUM_STREAMS") == 1
    assert not run._requests._compiled.get_property("ENABLE_CPU_PINNING")


def test_it_is_built_like_every_other_runtime():
    torch.manual_seed(0)
    model = Images().eval()
    samples = [Sample((torch.randn(size, 3, 16, 16),), {}) for size in (2, 3)]
    built = build(Call(model), OPENVINO, samples)
    for sample in samples:
        torch.testing.assert_close(built(*sample.args), Call(model)(*sample.args), rtol=1e-4, atol=1e-5)


def test_a_file_that_is_no_program_is_refused_in_a_line(packed, tmp_path):
    program, _serve = packed(nn.Linear(4, 4), torch.randn(2, 4))
    (tmp_path / program.files[0]).write_bytes(b"x" * 1000)
    with pytest.raises(NotLoadable) as raised:
        ahead("openvino").load(program, Files(tmp_path), None, None)
    assert "\n" not in str(raised.value)


def test_nothing_is_sent_home(tmp_path):
    """Neither what it counts nor an identity is kept, or sent, by building and running a program."""
    code = """
import sys, torch
from autocompile.core.plan import Plan
from autocompile.runtime.building import build
from autocompile.workload.call import Call
from autocompile.workload.samples import Sample
x = torch.randn(2, 4)
build(Call(torch.nn.Linear(4, 4)), Plan(runtime="openvino"), [Sample((x,), {})])(x)
assert "openvino" in sys.modules
assert not [name for name in sys.modules if name.startswith("openvino_telemetry")]
"""
    around = {name: value for name, value in os.environ.items() if name != "CI"}
    around |= {"HOME": str(tmp_path), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", code], env=around, check=True)
    assert not (tmp_path / "intel").exists()


def test_ctrl_c_is_heard_after_programs_have_come_and_gone():
    code = """
import gc, os, signal
import torch
from autocompile.core.plan import Plan
from autocompile.runtime.building import build
from autocompile.workload.call import Call
from autocompile.workload.samples import Sample
x = torch.randn(2, 4)
programs = [build(Call(torch.nn.Linear(4, 4)), Plan(runtime="openvino"), [Sample((x,), {})]) for _ in range(3)]
while programs:
    programs.pop(0)(x)
    gc.collect()
try:
    os.kill(os.getpid(), signal.SIGINT)
    signal.pause()
except KeyboardInterrupt:
    print("heard")
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.stdout == "heard\n", done.stderr


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's about its own deprecated names
def test_the_snippet_runs():
    torch.manual_seed(0)
    from autocompile.runtime.openvino.library import openvino

    openvino()  # the snippet imports it by itself, with its telemetry
    model = Text().eval()
    names = {"model": model}
    exec(snippet(OPENVINO, device_type="cpu", is_module=True), names)
    ids, keep = torch.randint(50, (2, 6)), torch.ones(2, 6, dtype=torch.bool)
    expected = Call(model)(ids, keep)
    model.forward = lambda ids, keep: {"pooled": Text.forward(model, ids, keep)["pooled"]}
    torch.testing.assert_close(names["run"](ids, keep)["pooled"], expected["pooled"], rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_snippet_converts_what_openvino_itself_cannot():
    from autocompile.runtime.openvino.library import openvino

    openvino()
    model = Applied(lambda _self, x, to: torch.zeros(3, 4).index_add(0, to, x, alpha=2))
    names, args = {"model": model}, (torch.randn(2, 4), torch.tensor([2, 0]))
    exec(snippet(OPENVINO, device_type="cpu", is_module=True), names)
    torch.testing.assert_close(names["run"](*args), Call(model)(*args))


FREE_ROWS = [axis("n0", 1, 300, (0, 0))]


@pytest.mark.parametrize("axes", [(), FREE_ROWS], ids=["one size", "any size"])
def test_memory_of_a_large_output_is_used_again_when_nobody_has_it(axes, packed):
    torch.manual_seed(0)
    mix, x = nn.Linear(32, 4096), torch.randn(16, 32)
    program, serve = packed(Applied(lambda _self, x: mix(x), mix), x, axes=axes)
    assert program.own["computed"] == [True]
    for _ in range(2):  # afterwards both ways have their own memory
        serve(x)
    first = serve(x)
    place, wanted = first.data_ptr(), first.clone()
    row = first.numpy()[3]  # an array on a part of it
    del first
    others = [serve(-x), serve(-2 * x)]
    assert place not in [other.data_ptr() for other in others]
    torch.testing.assert_close(torch.from_numpy(row), wanted[3], rtol=0, atol=0)
    torch.testing.assert_close(others[1], mix(-2 * x).detach(), rtol=1e-4, atol=1e-5)
    place = others[1].data_ptr()
    del others, row
    again = serve(x)
    assert again.data_ptr() == place
    torch.testing.assert_close(again, wanted, rtol=0, atol=0)


def test_a_small_output_does_not_keep_the_memory_of_a_large_one(packed):
    mix = nn.Linear(32, 512)
    _program, serve = packed(Applied(lambda _self, x: mix(x), mix), torch.randn(16, 32), axes=FREE_ROWS)
    kept = []
    for rows in (300, 2, 300, 300, 2, 2, 300):
        x = torch.randn(rows, 32)
        kept.append((serve(x), mix(x).detach()))
    for found, wanted in kept:
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
        if len(found) == 2:
            assert found.numpy().base.nbytes == found.nbytes


def test_an_array_made_of_an_output_keeps_its_memory():
    """NumPy would let a slice of a slice refer to the owner of the memory, and not to the slice that was returned."""

    class Request:
        def set_output_tensor(self, _index, given):
            self.given = given

    kind = SimpleNamespace(to_dtype=lambda: np.float32)
    port = SimpleNamespace(element_type=kind, shape=(512, 128), partial_shape=SimpleNamespace(is_static=True))
    request = Request()
    one = result(request, lambda array, _shape, _type: array, 0, port, True)
    for make in (lambda array: array[1:], lambda array: array.view(np.int32), lambda array: array.T, memoryview):
        one.begin()
        before = request.given.ctypes.data
        assert before % 64 == 0
        kept = make(one.taken())
        one.begin()
        assert request.given.ctypes.data != before
        del kept
        before = request.given.ctypes.data
        one.taken()
        one.begin()
        assert request.given.ctypes.data == before


def test_inputs_of_any_size_are_only_read_and_later_ones_are_used(packed):
    mix = nn.Linear(32, 8)
    _program, serve = packed(Applied(lambda _self, x: (mix(x), x.relu(), x), mix), torch.randn(8, 32), axes=FREE_ROWS)
    for rows in (8, 8, 200, 200, 8, 4, 300, 8):  # below and above the size up to which they are copied
        x = torch.randn(rows, 32)
        kept = x.clone()
        found = serve(x)
        assert torch.equal(x, kept)
        x.zero_()
        wanted = [mix(kept).detach(), kept.relu(), kept]
        torch.testing.assert_close(list(found), wanted, rtol=1e-4, atol=1e-5)
