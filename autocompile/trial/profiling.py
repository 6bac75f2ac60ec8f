"""A first profile: what the baseline does, before anything is searched."""

from __future__ import annotations

import contextlib
import io
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch._dynamo as dynamo
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from autocompile.core.errors import InvalidWorkload
from autocompile.core.estimate import Estimate
from autocompile.core.job import Acceptance, ProfileTask
from autocompile.core.plan import Plan
from autocompile.core.profile import GraphBreak, Profile
from autocompile.core.tolerance import published_tolerance
from autocompile.trial.memory import peak_memory_bytes
from autocompile.trial.nvml import utilization
from autocompile.trial.phases import Phases
from autocompile.trial.timing import CLOCKS, OnCopies, Pairs, Subject, subject, time_pairs
from autocompile.trial.verify import verify
from autocompile.workload.blocks import repeated_blocks
from autocompile.workload.build import Built, build
from autocompile.workload.metric import unspool_metric
from autocompile.workload.reference import Reference, make_reference, observe
from autocompile.workload.samples import Sample
from autocompile.workload.spool import unspool

_PROFILED_CALLS = 3
_VARIANTS = 2
# Leaf operators that only make or describe tensors; what they take is overhead, not a kernel.
_NOT_KERNELS = frozenset(
    f"aten::{name}"
    for name in (
        "empty", "empty_strided", "empty_like", "as_strided", "view", "_unsafe_view", "expand", "t", "transpose",
        "permute", "slice", "select", "unsqueeze", "squeeze", "reshape", "_reshape_alias", "resolve_conj",
        "resolve_neg", "detach", "alias", "result_type", "unbind", "split", "chunk", "lift_fresh", "to",
    )
)  # fmt: skip

_MATRIX = frozenset(
    f"aten::{name}"
    for name in ("mm", "addmm", "bmm", "baddbmm", "convolution", "mkldnn_convolution", "scaled_dot_product_attention")
)


def take_profile(task: ProfileTask, phases: Phases) -> Profile:
    """Profile the baseline and leave the float64 reference behind.

    Raises whatever the model raises on its own inputs.
    """
    with phases("load"):
        model, samples = unspool(task.workload)
        device = task.workload.device_type
        eager = build(model, Plan(), device)
    with phases("verify"):
        deterministic, random = _repeatability(model, samples[0], task.seed)
        reference = make_reference(model, samples, variants=_VARIANTS, seed=task.seed)
        reference.save(Path(task.reference), with_outputs=bool(task.metric))
        floor = verify(eager, reference, Acceptance(published_tolerance(""))).accuracy.baseline_error
        _try_metric(task.metric, reference)
    with phases("timing"):
        timed = OnCopies(eager) if reference.mutates_inputs else eager
        pairs, busy_share, busy_source = _time_baseline(timed, samples, device, task)
    with phases("profile"):
        kernels = _kernels(eager, samples, device)
        memory = peak_memory_bytes(device)
        graph_count, breaks, trace_failure = _graph_breaks(model, samples[0])
        blocks = repeated_blocks(model)
    return Profile(
        baseline_ms=_baseline_ms(pairs),
        self_ratio=pairs.ratio,
        busy_share=busy_share,
        busy_source=busy_source,
        outside_kernels_share=kernels.outside_share,
        kernels_per_call=kernels.per_call,
        median_kernel_us=kernels.median_us,
        matrix_kernels=kernels.matrix,
        peak_memory_bytes=memory,
        graph_count=graph_count,
        graph_breaks=breaks,
        trace_failure=trace_failure,
        blocks=blocks,
        deterministic=deterministic,
        random=random,
        error_floor=floor,
        reference=reference.precision,
        variants=len(reference.cases),
        notes=reference.notes + _notes(task, pairs, random=random, mutates=reference.mutates_inputs),
    )


def _baseline_ms(pairs: Pairs) -> Estimate:
    latency = pairs.baseline
    other = pairs.candidate
    return Estimate(
        value=statistics.mean((latency.p50_ms, other.p50_ms)),
        low=min(latency.p50_ms, other.p50_ms),
        high=max(latency.p90_ms, other.p90_ms),
    )


def _notes(task: ProfileTask, pairs: Pairs, *, random: bool, mutates: bool) -> tuple[str, ...]:
    notes = []
    if task.workload.in_training_mode:
        notes.append("the model is in training mode and was tuned so; call model.eval() first if it is to serve")
    if mutates:
        notes.append("the model writes into its inputs: every call gets a copy, whose cost is in all figures")
    if random:
        notes.append("the model is random by nature: equal inputs give other outputs from another RNG state")
    if pairs.contamination.noisy:
        share = pairs.contamination.other_cpu_share
        notes.append(f"the host is noisy: others took {share:.0%} of its CPU time during the baseline's timing")
    return tuple(notes)


def _repeatability(model: Any, sample: Sample, seed: int) -> tuple[bool, bool]:
    """Whether two runs from one RNG state agree exactly, and whether two from different ones do not.

    Raises InvalidWorkload if there is nothing to compare, or something that cannot be compared.
    """
    first, again, other = (observe(model, sample, s).leaves for s in (seed, seed, seed + 1))
    outputs = {name: leaf for name, leaf in first.items() if name.startswith("output")}
    if not any(isinstance(leaf, torch.Tensor) for leaf in outputs.values()):
        kinds = ", ".join(sorted({type(leaf).__name__ for leaf in outputs.values()})) or "nothing"
        raise InvalidWorkload(f"the model returns no tensor ({kinds})", where="model", remedy="return what it computes")
    for name, leaf in outputs.items():
        if not isinstance(leaf, torch.Tensor) and not bool(leaf == again[name]):
            raise InvalidWorkload(
                f"{name} is a {type(leaf).__name__}, which does not equal itself from one call to the next",
                where="model",
                remedy="return tensors, numbers and text only, or give it an __eq__",
            )
    return _same(first, again), not _same(first, other) and _same(first, again)


def _try_metric(path: str, reference: Reference) -> None:
    metric = unspool_metric(path)
    if metric is not None:
        for case in reference.cases:
            metric(case.baseline.output)


def _same(one: dict[str, Any], two: dict[str, Any]) -> bool:
    return all(
        torch.equal(torch.nan_to_num(value), torch.nan_to_num(two[name])) if _plain(value) else True
        for name, value in one.items()
    )


def _plain(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not value.is_complex()


def _time_baseline(
    eager: Built | OnCopies, samples: Sequence[Sample], device: str, task: ProfileTask
) -> tuple[Pairs, float, str]:
    one: Subject = subject(eager, samples, device, torch.get_num_threads())
    twin = subject(eager, samples, device, torch.get_num_threads())
    for _ in range(3):
        one.one_pass()
    wall, cpu = time.perf_counter(), time.process_time()
    pairs = time_pairs(one, twin, task.timing, task.seed)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    if device == "cuda":
        busy = utilization(one.one_pass, seconds=2.0)
        if busy is not None:
            return pairs, busy, "NVML utilization over 2 s of steady state"
        return pairs, 0.0, "unknown: NVML does not answer"
    threads = torch.get_num_threads()
    return pairs, min(1.0, cpu / (wall * threads)), f"process CPU time over {threads} threads' wall time (psutil)"


@dataclass(frozen=True)
class _Kernels:
    per_call: int
    median_us: float
    outside_share: float
    matrix: int


def _kernels(eager: Built, samples: Sequence[Sample], device: str) -> _Kernels:
    """Count kernels, and the share of the wall time that none of them covers.

    On a GPU a kernel is a device event; on a CPU it is a leaf operator, or a matrix product, beneath which
    only copies are. Intervals are united, not summed, as they overlap.
    """
    sample, synchronize = samples[0], CLOCKS[device]
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    with contextlib.redirect_stderr(io.StringIO()), profile(activities=activities) as recorded:
        started = time.perf_counter()
        for _ in range(_PROFILED_CALLS):
            eager(*sample.args, **sample.kwargs)
            synchronize()
        wall_us = (time.perf_counter() - started) * 1e6
    events = recorded.events() or []
    if device == "cuda":
        found = [e for e in events if e.device_type == DeviceType.CUDA]
    else:
        found = [e for e in events if e.name in _MATRIX or (_is_leaf_operator(e) and e.name not in _NOT_KERNELS)]
    spans = sorted((e.time_range.start, e.time_range.end) for e in found)
    lengths = [end - start for start, end in spans]
    return _Kernels(
        per_call=round(len(spans) / _PROFILED_CALLS),
        median_us=statistics.median(lengths) if lengths else 0.0,
        outside_share=max(0.0, 1 - _union(spans) / wall_us),
        matrix=round(sum(e.name in _MATRIX for e in events) / _PROFILED_CALLS),
    )


def _is_leaf_operator(event: Any) -> bool:
    return not event.cpu_children and event.name.startswith("aten::")


def _union(spans: list[tuple[float, float]]) -> float:
    covered, reach = 0.0, float("-inf")
    for start, end in spans:
        covered += max(0.0, end - max(start, reach))
        reach = max(reach, end)
    return covered


def _graph_breaks(model: Any, sample: Sample) -> tuple[int, tuple[GraphBreak, ...], str]:
    """Trace without compiling; what cannot be traced at all is told, not raised."""
    try:
        with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
            explained = dynamo.explain(model)(*sample.args, **sample.kwargs)
    except Exception as fault:  # the tracer may fail in any way; the trials will show what it means
        return 0, (), f"{type(fault).__name__}: {str(fault).splitlines()[0] if str(fault) else ''}"
    finally:
        dynamo.reset()
    breaks = []
    for found in explained.break_reasons:
        frame = found.user_stack[-1] if found.user_stack else None
        breaks.append(
            GraphBreak(
                file=frame.filename if frame else "",
                line=(frame.lineno or 0) if frame else 0,
                reason=str(found.reason).splitlines()[0],
            )
        )
    return explained.graph_count, tuple(breaks), ""
