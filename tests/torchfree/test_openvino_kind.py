"""What is known about OpenVINO without importing it."""

import pytest

from autocompile.core.plan import Plan
from autocompile.runtime.openvino import kind as room
from autocompile.runtime.openvino import processor
from autocompile.runtime.openvino.kind import KIND
from autocompile.runtime.snippet import snippet
from autocompile.space.surroundings import Surroundings

HERE = Surroundings("cpu", 2, True, False, 1)


@pytest.fixture
def has(monkeypatch):
    """Gives the processor these instructions."""

    def given(*names):
        processor._has.cache_clear()
        monkeypatch.setattr(processor, "instructions", lambda: names)

    yield given
    processor._has.cache_clear()


def test_it_runs_on_a_cpu_only():
    assert KIND.problem(HERE) == ""
    assert "the workload is on cuda" in KIND.problem(Surroundings("cuda", 2, True, False, 1))


@pytest.mark.parametrize(
    ("instructions", "closed"),
    [
        (("avx2", "avx512f"), {"bf16", "fp16"}),
        (("avx2", "avx512bw", "avx512_bf16"), {"fp16"}),
        (("avx512_bf16", "avx512_fp16", "amx_bf16"), set()),
        (("asimd", "asimdhp", "bf16"), {"bf16"}),
        ((), {"bf16", "fp16"}),
    ],
)
def test_a_reduced_dtype_that_the_processor_does_not_compute_in_is_closed_with_the_reason(has, instructions, closed):
    has(*instructions)
    reasons = {amp: KIND.conflict({"amp": amp}, HERE) for amp in ("off", "bf16", "fp16")}
    assert {amp for amp, reason in reasons.items() if reason} == closed
    assert all("this processor has no" in reasons[amp] for amp in closed)


def test_a_program_is_of_a_version_and_a_kind_of_processor(has, monkeypatch):
    monkeypatch.setattr(room.Kind, "version", lambda _self: "2026.4.1")
    has("avx", "avx2", "avx512bw", "avx512_vnni", "avx512_bf16")
    assert KIND.version() == "2026.4.1 for avx512_bf16"
    has("avx", "avx2", "avx512bw", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16")
    assert KIND.version() == "2026.4.1 for amx_bf16"
    has()
    assert KIND.version() == "2026.4.1"
    monkeypatch.setattr(room.Kind, "version", lambda _self: "")
    assert KIND.version() == ""


def test_it_takes_no_layout_and_holds_the_weights():
    assert "memory_format" not in KIND.takes
    assert KIND.dimensions == ()
    assert KIND.holds_weights(Plan(runtime=KIND.name))


@pytest.mark.parametrize(
    ("plan", "lines"),
    [
        (Plan(runtime=KIND.name), ['"INFERENCE_PRECISION_HINT": "f32"', "torch.get_num_threads()"]),
        (
            Plan(runtime=KIND.name, autocast="bfloat16", threads=3),
            ['"INFERENCE_PRECISION_HINT": "bf16"', '"INFERENCE_NUM_THREADS": 3'],
        ),
    ],
)
def test_the_snippet_is_plain_code(plan, lines):
    text = snippet(plan, device_type="cpu", is_module=True)
    compile(text, "snippet", "exec")
    assert "autocompile" not in text
    assert all(line in text for line in lines)
