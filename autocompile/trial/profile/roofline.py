"""What bounds a call, from figures alone, and the evidence for it in a sentence.

The work of a call is set against what this device does at best: the share of a call's time in which its FLOPs, its
bytes, or the mere starting of its operators could have been done (a roofline with a third side). The largest names
the bound. A GPU tells by itself: where it is idle, it waits for launches, whatever they compute.
"""

from __future__ import annotations

from dataclasses import dataclass

from autocompile.core.profile import Bound, Ceilings
from autocompile.core.units import format_bytes, format_ms

# Rule of thumb from profiling practice: a GPU that is busy for less of the time waits for its launches.
_STARVED = 0.65
# Below this none of the ceilings explains the time.
_EXPLAINS = 0.2
_MOSTLY = 0.5


@dataclass(frozen=True)
class Figures:
    """Of one call: what it takes and what it does; `idle_share` is of the device, None where it is not known."""

    latency_ms: float
    flops: int
    bytes: int
    operators: int
    kernels: int
    median_kernel_us: float
    outside_share: float
    idle_share: float | None
    ceilings: Ceilings
    input_ms: float = 0.0
    input_share: float = 0.0

    @property
    def flops_share(self) -> float:
        """Of the time, what its FLOPs would take at best."""
        return self.flops / self.ceilings.flops_per_s / (self.latency_ms / 1e3)

    @property
    def bandwidth_share(self) -> float:
        """Of the time, what moving its bytes would take at best."""
        return self.bytes / self.ceilings.bytes_per_s / (self.latency_ms / 1e3)

    @property
    def overhead_share(self) -> float:
        """Of the time, what starting its operators takes."""
        return self.operators * self.ceilings.dispatch_us / (self.latency_ms * 1e3)


def bound_of(seen: Figures) -> tuple[Bound, str]:
    """What bounds the call, and why."""
    if seen.input_share > _MOSTLY:
        return "input", (
            f"a batch takes {format_ms(seen.input_ms)} to come and {format_ms(seen.latency_ms)} to compute: "
            f"{seen.input_share:.0%} of a step is spent waiting for it"
        )
    if seen.idle_share is not None and 1 - seen.idle_share < _STARVED:
        return "overhead", (
            f"the GPU is idle for {seen.idle_share:.0%} of the time: it waits for launches ({_kernels(seen)})"
        )
    shares: dict[Bound, float] = {
        "compute": seen.flops_share,
        "memory": seen.bandwidth_share,
        "overhead": seen.overhead_share,
    }
    largest = max(shares, key=lambda name: shares[name])
    if shares[largest] >= _EXPLAINS:
        return largest, f"{_SENTENCES[largest](seen)} ({_others(shares, largest)})"
    if seen.outside_share > _MOSTLY:
        return "overhead", (
            f"{seen.outside_share:.0%} of a call lies outside of kernels ({_kernels(seen)}): Python, the dispatcher "
            "or waiting take the time"
        )
    return "unknown", (
        f"no ceiling is near ({_others(shares, None)}), but kernels take the time ({_kernels(seen)}): they are slow by "
        "themselves, or are held up by other processes"
    )


def _kernels(seen: Figures) -> str:
    return f"{seen.kernels} a call, {seen.median_kernel_us:.3g} µs at the median"


def _of_compute(seen: Figures) -> str:
    rate = seen.flops / (seen.latency_ms / 1e3)
    return (
        f"{seen.flops / 1e9:.3g} GFLOP a call run at {rate / 1e9:.3g} GFLOP/s, {seen.flops_share:.0%} of what a large "
        f"{seen.ceilings.dtype} matrix product reaches here"
    )


def _of_memory(seen: Figures) -> str:
    rate = seen.bytes / (seen.latency_ms / 1e3)
    beyond = ", more than a copy's as some stays in caches" if seen.bandwidth_share > 1 else ""
    return (
        f"{format_bytes(seen.bytes)} a call move at {rate / 1e9:.3g} GB/s, {seen.bandwidth_share:.0%} of what a large "
        f"copy reaches here{beyond}"
    )


def _of_overhead(seen: Figures) -> str:
    return (
        f"starting {seen.operators} operators a call at {seen.ceilings.dispatch_us:.2g} µs each takes "
        f"{min(1.0, seen.overhead_share):.0%} of the time; a kernel lasts {seen.median_kernel_us:.3g} µs at the median"
    )


_SENTENCES = {"compute": _of_compute, "memory": _of_memory, "overhead": _of_overhead}
_WORDS = {"compute": "FLOPs", "memory": "bytes", "overhead": "starting operators"}


def _others(shares: dict[Bound, float], named: Bound | None) -> str:
    return ", ".join(f"{_WORDS[name]} {share:.0%}" for name, share in shares.items() if name != named)
