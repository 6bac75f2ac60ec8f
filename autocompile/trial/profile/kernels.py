"""Measure the kernels of a call with torch's profiler: their number, their length, and the time outside them."""

from __future__ import annotations

import contextlib
import io
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from autocompile.core.step_profile import Phase
from autocompile.trial.clock.devices import DEVICES
from autocompile.workload.samples import Sample
from autocompile.workload.step import Step

# Leaf operators that only create or describe tensors. Their time is overhead, not a kernel.
NOT_KERNELS = frozenset(
    f"aten::{name}"
    for name in (
        "empty", "empty_strided", "empty_like", "as_strided", "view", "_unsafe_view", "expand", "t", "transpose",
        "permute", "slice", "select", "unsqueeze", "squeeze", "reshape", "_reshape_alias", "resolve_conj",
        "resolve_neg", "detach", "alias", "result_type", "unbind", "split", "chunk", "lift_fresh", "to",
    )
)  # fmt: skip

# Operators that other operators call to wrap a number or to lay out an operand. Called alone, they are kernels.
_INCIDENTAL = NOT_KERNELS | {f"aten::{name}" for name in ("_to_copy", "copy_", "fill_", "zero_", "resize_")}

_MATRIX = frozenset(
    f"aten::{name}"
    for name in ("mm", "addmm", "bmm", "baddbmm", "convolution", "mkldnn_convolution", "scaled_dot_product_attention")
)


# The prefix of a phase's name in the profiler.
_RANGE = "autocompile phase: "


@dataclass(frozen=True)
class Kernels:
    """The kernels of one call: their number, median length in µs, share of wall time outside them, matrix products.

    `attention_share` is the share of a CPU's wall time in torch's fused kernels for attention, forward and backward.
    """

    per_call: int
    median_us: float
    outside_share: float
    matrix: int
    attention_share: float = 0.0
    phases: Mapping[Phase, PhaseKernels] = field(default_factory=dict)


@dataclass(frozen=True)
class PhaseKernels:
    """The kernels of one phase. `busy_ms`: the time that they cover in one call."""

    per_call: int
    median_us: float
    outside_share: float
    busy_ms: float


def kernels_of(step: Step, sample: Sample, device: str, runs: int) -> Kernels:
    """Count kernels, and measure the share of wall time that no kernel covers.

    On a GPU, a kernel is a device event. On a CPU, it is an outermost operator that computes something itself: a matrix
    product, or an operator that calls only copies and views. The covered time is the union of the intervals, as they
    overlap. The profiler slows down launches but not the kernels of a GPU. On a GPU, the covered time is therefore
    compared with the wall time without the profiler.
    """
    synchronize = DEVICES[device].synchronize
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    with contextlib.redirect_stderr(io.StringIO()), profile(activities=activities, acc_events=True) as recorded:
        started = time.perf_counter()
        for _ in range(runs):
            with _ranges(step):
                step.run(sample)
            synchronize()
        wall_us = (time.perf_counter() - started) * 1e6
    if device == "cuda":
        wall_us = _wall_us(step, sample, synchronize, runs)
    events = recorded.events() or []
    if device == "cuda":
        kernels = [e for e in events if e.device_type == DeviceType.CUDA and not e.is_user_annotation]
    else:
        kernels = [kernel for e in events if e.cpu_parent is None for kernel in _computing(e)]
    spans = _spans(kernels)
    lengths = [end - start for start, end in spans]
    return Kernels(
        per_call=round(len(spans) / runs),
        median_us=statistics.median(lengths) if lengths else 0.0,
        outside_share=max(0.0, 1 - _union(spans) / wall_us),
        matrix=round(sum(e.name in _MATRIX and not _within_another(e) for e in events) / runs),
        attention_share=_union(_spans([e for e in events if _is_fused_attention(e)])) / wall_us,
        phases=_by_phase(events, kernels, device, runs),
    )


def _wall_us(step: Step, sample: Sample, synchronize: Callable[[], None], runs: int) -> float:
    """Return the microseconds that `runs` runs take, with a synchronization after each."""
    synchronize()
    started = time.perf_counter()
    for _ in range(runs):
        step.run(sample)
        synchronize()
    return (time.perf_counter() - started) * 1e6


@contextlib.contextmanager
def _ranges(step: Step) -> Iterator[None]:
    """Have the profiler record the phases of one run."""
    with contextlib.ExitStack() as open_range:

        def begin(phase: Phase) -> None:
            open_range.close()
            open_range.enter_context(record_function(f"{_RANGE}{phase}"))

        with step.telling(begin):
            yield


def _by_phase(events: Sequence[Any], kernels: Sequence[Any], device: str, runs: int) -> dict[Phase, PhaseKernels]:
    """Return the kernels of each phase: on a CPU those that began in it, on a GPU those that were launched in it."""
    ranges: dict[Phase, list[Any]] = defaultdict(list)
    for event in events:
        if event.device_type == DeviceType.CPU and event.name.startswith(_RANGE):
            ranges[cast("Phase", event.name.removeprefix(_RANGE))].append(event.time_range)
    found = {}
    for phase, times in ranges.items():
        if device == "cuda":
            launchers = [e for e in events if e.device_type == DeviceType.CPU and _within(e, times)]
            lengths = [k.duration for e in launchers for k in e.kernels if not k.name.startswith(_RANGE)]
            covered = sum(lengths)
        else:
            spans = _spans([kernel for kernel in kernels if _within(kernel, times)])
            lengths, covered = [end - start for start, end in spans], _union(spans)
        found[phase] = PhaseKernels(
            per_call=round(len(lengths) / runs),
            median_us=statistics.median(lengths) if lengths else 0.0,
            outside_share=max(0.0, 1 - covered / (sum(time.end - time.start for time in times) or 1.0)),
            busy_ms=covered / runs / 1e3,
        )
    return found


def _within(event: Any, times: Sequence[Any]) -> bool:
    return any(time.start <= event.time_range.start < time.end for time in times)


def _spans(kernels: Sequence[Any]) -> list[tuple[float, float]]:
    return sorted((kernel.time_range.start, kernel.time_range.end) for kernel in kernels)


def _computing(event: Any) -> Iterator[Any]:
    computes = event.name.startswith("aten::") and event.name not in NOT_KERNELS
    if event.name in _MATRIX or (computes and all(name in _INCIDENTAL for name in _beneath(event))):
        yield event
    else:
        for child in event.cpu_children:
            yield from _computing(child)


def _is_fused_attention(event: Any) -> bool:
    name = str(event.name)
    return event.device_type == DeviceType.CPU and name.startswith("aten::_scaled_dot_product_flash_attention_for_cpu")


def _within_another(event: Any) -> bool:
    """Whether a matrix operator called this one: a convolution calls another operator for the same convolution."""
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
