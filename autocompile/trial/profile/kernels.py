"""The kernels of a call, as torch's profiler sees them: how many, how long, and what they leave uncovered."""

from __future__ import annotations

import contextlib
import io
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from autocompile.trial.clock.devices import DEVICES
from autocompile.workload.samples import Sample
from autocompile.workload.step import Step

# Leaf operators that only make or describe tensors; what they take is overhead, not a kernel.
NOT_KERNELS = frozenset(
    f"aten::{name}"
    for name in (
        "empty", "empty_strided", "empty_like", "as_strided", "view", "_unsafe_view", "expand", "t", "transpose",
        "permute", "slice", "select", "unsqueeze", "squeeze", "reshape", "_reshape_alias", "resolve_conj",
        "resolve_neg", "detach", "alias", "result_type", "unbind", "split", "chunk", "lift_fresh", "to",
    )
)  # fmt: skip

# Operators that others call to wrap a number or to lay out an operand; alone they are kernels.
_INCIDENTAL = NOT_KERNELS | {f"aten::{name}" for name in ("_to_copy", "copy_", "fill_", "zero_", "resize_")}

_MATRIX = frozenset(
    f"aten::{name}"
    for name in ("mm", "addmm", "bmm", "baddbmm", "convolution", "mkldnn_convolution", "scaled_dot_product_attention")
)


@dataclass(frozen=True)
class Kernels:
    """Of one call: how many, their median length in µs, the share of wall time outside them, matrix products."""

    per_call: int
    median_us: float
    outside_share: float
    matrix: int


def kernels_of(step: Step, sample: Sample, device: str, runs: int) -> Kernels:
    """Count kernels, and the share of the wall time that none of them covers.

    On a GPU a kernel is a device event; on a CPU it is an outermost operator that computes by itself: a matrix
    product, or one that calls nothing but copies and views. Intervals are united, not summed, as they overlap.
    """
    synchronize = DEVICES[device].synchronize
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    with contextlib.redirect_stderr(io.StringIO()), profile(activities=activities) as recorded:
        started = time.perf_counter()
        for _ in range(runs):
            step.run(sample)
            synchronize()
        wall_us = (time.perf_counter() - started) * 1e6
    events = recorded.events() or []
    if device == "cuda":
        kernels = [e for e in events if e.device_type == DeviceType.CUDA]
    else:
        kernels = [kernel for e in events if e.cpu_parent is None for kernel in _computing(e)]
    spans = sorted((e.time_range.start, e.time_range.end) for e in kernels)
    lengths = [end - start for start, end in spans]
    return Kernels(
        per_call=round(len(spans) / runs),
        median_us=statistics.median(lengths) if lengths else 0.0,
        outside_share=max(0.0, 1 - _union(spans) / wall_us),
        matrix=round(sum(e.name in _MATRIX and not _within_another(e) for e in events) / runs),
    )


def _computing(event: Any) -> Iterator[Any]:
    computes = event.name.startswith("aten::") and event.name not in NOT_KERNELS
    if event.name in _MATRIX or (computes and all(name in _INCIDENTAL for name in _beneath(event))):
        yield event
    else:
        for child in event.cpu_children:
            yield from _computing(child)


def _within_another(event: Any) -> bool:
    """A convolution calls another, which is the same one."""
    return event.cpu_parent is not None and event.cpu_parent.name in _MATRIX


def _beneath(event: Any) -> Iterator[str]:
    for child in event.cpu_children:
        yield child.name
        yield from _beneath(child)


def _union(spans: list[tuple[float, float]]) -> float:
    covered, reach = 0.0, float("-inf")
    for start, end in spans:
        covered += max(0.0, end - max(start, reach))
        reach = max(reach, end)
    return covered
