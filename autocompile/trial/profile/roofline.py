"""Determine from figures what bounds a call, a step or a part of it, with the evidence as a sentence.

The work of a call is compared with the peak performance of this device: the share of the call's time that its FLOPs,
its bytes, or the dispatch of its operators would take at best (a roofline with a third ceiling). The largest share
names the bound. A GPU that is mostly idle waits for launches, whatever the kernels compute.
"""

from __future__ import annotations

from dataclasses import dataclass

from autocompile.core.bound import STARVED_GPU, Bound
from autocompile.core.profile import Ceilings
from autocompile.core.units import format_bytes, format_ms

# If all shares are below this, no ceiling explains the time.
_EXPLAINS = 0.2
_MOSTLY = 0.5


@dataclass(frozen=True)
class Figures:
    """The time and work of one call. `idle_share`: the idle share of the device, None if it is not known.

    `one`: the word for one unit of work in texts. `convolution_flops`: those of the `flops` that are in convolutions.
    """

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
    one: str = "call"
    convolution_flops: int = 0

    @property
    def flops_share(self) -> float:
        """The share of the time that the FLOPs would take at best."""
        convolves_at = self.ceilings.convolution_flops_per_s or self.ceilings.flops_per_s
        multiplied = self.flops - self.convolution_flops
        best_s = multiplied / self.ceilings.flops_per_s + self.convolution_flops / convolves_at
        return best_s / (self.latency_ms / 1e3)

    @property
    def bandwidth_share(self) -> float:
        """The share of the time that moving the bytes would take at best."""
        return self.bytes / self.ceilings.bytes_per_s / (self.latency_ms / 1e3)

    @property
    def overhead_share(self) -> float:
        """The share of the time that dispatching the operators takes."""
        return self.operators * self.ceilings.dispatch_us / (self.latency_ms * 1e3)


def bound_of(call: Figures) -> tuple[Bound, str]:
    """Return what bounds the call, and the evidence for it."""
    if call.input_share > _MOSTLY:
        return "input", (
            f"a batch takes {format_ms(call.input_ms)} to come and {format_ms(call.latency_ms)} to compute: "
            f"{call.input_share:.0%} of a step is spent waiting for it"
        )
    if call.idle_share is not None and 1 - call.idle_share < STARVED_GPU:
        return "overhead", (
            f"the GPU is idle for {call.idle_share:.0%} of the time: it waits for launches ({_kernels(call)})"
        )
    shares: dict[Bound, float] = {
        "compute": call.flops_share,
        "memory": call.bandwidth_share,
        "overhead": call.overhead_share,
    }
    largest = max(shares, key=lambda name: shares[name])
    if shares[largest] >= _EXPLAINS:
        return largest, f"{_SENTENCES[largest](call)} ({_others(shares, largest)})"
    if call.outside_share > _MOSTLY and call.kernels:
        return "overhead", (
            f"{call.outside_share:.0%} of the time is spent outside of kernels ({_kernels(call)}): in Python, in the "
            "dispatcher or waiting"
        )
    return "unknown", (
        f"no ceiling is near ({_others(shares, None)}), but the time is spent in kernels ({_kernels(call)}): they are "
        "slow themselves, or other processes delay them"
    )


def _kernels(call: Figures) -> str:
    return f"{call.kernels} a {call.one}, {call.median_kernel_us:.3g} µs at the median"


def _of_compute(call: Figures) -> str:
    rate = call.flops / (call.latency_ms / 1e3)
    in_tf32 = call.convolution_flops and call.ceilings.convolution_flops_per_s
    convolved = ", convolutions measured by one in TF32" if in_tf32 else ""
    return (
        f"{call.flops / 1e9:.3g} GFLOP a {call.one} run at {rate / 1e9:.3g} GFLOP/s, {call.flops_share:.0%} of what a "
        f"large {call.ceilings.dtype} matrix product reaches here{convolved}"
    )


def _of_memory(call: Figures) -> str:
    rate = call.bytes / (call.latency_ms / 1e3)
    beyond = ", more than a copy's as some stays in caches" if call.bandwidth_share > 1 else ""
    return (
        f"{format_bytes(call.bytes)} a {call.one} move at {rate / 1e9:.3g} GB/s, {call.bandwidth_share:.0%} of what a "
        f"large copy reaches here{beyond}"
    )


def _of_overhead(call: Figures) -> str:
    return (
        f"starting {call.operators} operators a {call.one} at {call.ceilings.dispatch_us:.2g} µs each takes "
        f"{min(1.0, call.overhead_share):.0%} of the time; a kernel lasts {call.median_kernel_us:.3g} µs at the median"
    )


_SENTENCES = {"compute": _of_compute, "memory": _of_memory, "overhead": _of_overhead}
_WORDS = {"compute": "FLOPs", "memory": "bytes", "overhead": "starting operators"}


def _others(shares: dict[Bound, float], named: Bound | None) -> str:
    return ", ".join(f"{_WORDS[name]} {share:.0%}" for name, share in shares.items() if name != named)
