"""Descriptions made from profile numbers and compiler messages; no torch."""

import pytest
from builders import profile, workload

from autocompile.core.estimate import Estimate
from autocompile.core.pipeline import InputPipeline, LoaderSetting, LoaderTiming
from autocompile.core.profile import Ceilings, GraphBreak, Recompile, Submodule
from autocompile.report.profile import profile_lines
from autocompile.runtime.explanations import BREAKS, RECOMPILES, in_words
from autocompile.trial.profile.roofline import Figures, bound_of

CEILINGS = Ceilings(flops_per_s=100e9, bytes_per_s=10e9, dispatch_us=2.0, dtype="float32")

IN_TF32 = Ceilings(flops_per_s=100e9, bytes_per_s=10e9, dispatch_us=2.0, dtype="float32", convolution_flops_per_s=500e9)


def figures(**fields):
    """A call of 10 ms that reaches none of the ceilings."""
    given = {
        "latency_ms": 10.0,
        "flops": 1_000_000,
        "bytes": 1_000_000,
        "operators": 100,
        "kernels": 100,
        "median_kernel_us": 90.0,
        "outside_share": 0.1,
        "idle_share": None,
        "ceilings": CEILINGS,
    }
    return Figures(**{**given, **fields})


@pytest.mark.parametrize(
    ("fields", "bound", "said"),
    [
        ({"flops": 800_000_000}, "compute", "0.8 GFLOP a call run at 80 GFLOP/s, 80% of what a large float32"),
        (
            {"bytes": 70_000_000},
            "memory",
            "66.8 MiB a call move at 7 GB/s, 70% of what a large copy reaches here (FLOPs",
        ),
        (
            {"bytes": 150_000_000},
            "memory",
            "150% of what a large copy reaches here, more than a copy's as some stays in",
        ),
        ({"operators": 4000}, "overhead", "starting 4000 operators a call at 2 µs each takes 80% of the time"),
        (
            {"outside_share": 0.9, "median_kernel_us": 2.0},
            "overhead",
            "90% of the time is spent outside of kernels (100 a call",
        ),
        ({}, "unknown", "no ceiling is near (FLOPs 0%, bytes 1%, starting operators 2%)"),
        ({"idle_share": 0.6, "flops": 800_000_000}, "overhead", "the GPU is idle for 60% of the time"),
        ({"idle_share": 0.34, "flops": 800_000_000}, "overhead", "the GPU is idle for 34% of the time"),
        ({"idle_share": 0.33, "flops": 800_000_000}, "compute", "80%"),
        ({"idle_share": 0.1, "flops": 800_000_000}, "compute", "80%"),
        ({"outside_share": 1.0, "kernels": 0}, "unknown", "no ceiling is near"),  # the profiler may not look into it
        ({"flops": 800_000_000, "convolution_flops": 800_000_000, "ceilings": IN_TF32}, "unknown", "FLOPs 16%"),
        (
            {"flops": 800_000_000, "convolution_flops": 400_000_000, "ceilings": IN_TF32},
            "compute",
            "48% of what a large float32 matrix product reaches here, convolutions measured by one in TF32",
        ),
        ({"flops": 800_000_000, "convolution_flops": 400_000_000}, "compute", "80% of what a large"),
        ({"input_share": 0.8, "input_ms": 40.0}, "input", "a batch takes 40 ms to come and 10 ms to compute: 80%"),
        ({"input_share": 0.4, "input_ms": 6.0, "flops": 800_000_000}, "compute", "80%"),
    ],
)
def test_what_bounds_a_call(fields, bound, said):
    found, evidence = bound_of(figures(**fields))
    assert found == bound
    assert said in evidence


@pytest.mark.parametrize(
    ("said", "reason", "advice"),
    [
        (
            "Failed to trace builtin operator\n  Explanation: ... builtin operator `print` with",
            "print()",
            "is_compiling",
        ),
        ("generic_jump TensorVariable()", "a Python branch", "torch.where"),
        ("Unsupported Tensor.item() call with capture_scalar_outputs=False", ".item()", "capture_scalar_outputs"),
        ("Dynamic shape operator\n  Explanation: Operator `aten.nonzero.default`'s", "size of a result", "torch.where"),
        (
            "Unsupported method call\n  Explanation: method `close` of class `TextIOWrapper`",
            "TextIOWrapper.close()",
            "out",
        ),
        ("Attempted to call\n  module: posix, qualname: getpid, skip reason: x", "posix.getpid()", "outside"),
        ("Unsupported context manager\n  Explanation: Dynamo does not know how to enter a `Lock`", "Lock", "enter it"),
    ],
)
def test_graph_breaks_in_plain_words(said, reason, advice):
    found = in_words(BREAKS, said)
    assert reason in found[0]
    assert advice in found[1]


def test_what_is_not_known_is_told_in_the_compilers_own_words():
    said = (
        "Encountered graph break when attempting to trace CALL:\n\nSomething new\n  Explanation: It is new.\n  Hint: x"
    )
    assert in_words(BREAKS, said) == ("Something new: It is new.", "")
    assert in_words(BREAKS, "") == ("the compiler gives no reason", "")


def test_recompiles_in_plain_words():
    said = "0/0: tensor 'x' size mismatch at index 1. expected 3, actual 5"
    reason, advice = in_words(RECOMPILES, said)
    assert reason == "x has another size in axis 1: 3, then 5"
    assert "mark_dynamic(x, 1)" in advice


def timing(workers, batch_ms, prefetch=2):
    return LoaderTiming(LoaderSetting(workers, prefetch if workers else 0, pinned=False), batch_ms, 50)


def test_the_share_of_waiting_and_what_is_better():
    alone = InputPipeline("DataLoader", timing(0, 30.0), (timing(1, 31.0), timing(2, 15.5), timing(2, 15.0, 4)))
    assert alone.share(10.0) == pytest.approx(0.75)
    assert alone.better(10.0) == timing(2, 15.5), "the first of those that are about as good"
    assert alone.better(1000.0) is None
    ahead = InputPipeline("DataLoader", timing(2, 20.0))
    assert ahead.share(10.0) == pytest.approx(0.5)
    assert ahead.share(40.0) == 0.0
    assert ahead.better(10.0) is None


def test_a_profile_reads_well():
    pipeline = InputPipeline("DataLoader", timing(0, 30.0), (timing(2, 15.0),))
    lines = list(
        profile_lines(
            profile(
                baseline_ms=Estimate(10.0, 9.0, 11.0),
                bound="input",
                evidence="a batch takes long",
                ceilings=CEILINGS,
                pipeline=pipeline,
                better_loader=pipeline.tried[0],
                submodules=(Submodule("layers.0", "Linear", 1, 4.0, 0.4, 0.4, 1 << 20, 1 << 10),),
                graph_breaks=(GraphBreak("net.py", 3, "print() has to run in Python", "remove it"),),
                recompiles=(Recompile("net.py", 1, "x has another size", "mark it"),),
                exportable=False,
                export_failure="ValueError: no (net.py:9 in forward)",
            ),
            workload(),
        )
    )
    text = "\n".join(lines)
    assert lines[0] == "bound: input: a batch takes long"
    assert "30 ms a batch with num_workers=0; " in text
    assert "better: 15 ms a batch with num_workers=2, prefetch_factor=2" in text
    assert "  net.py:3: print() has to run in Python\n    instead: remove it" in text
    assert "1 graph break (traced as 1 graph)" in text
    assert "compiled again for other samples, 1 time" in text
    assert "does not export: ValueError: no (net.py:9 in forward)" in text
