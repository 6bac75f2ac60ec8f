"""What the profile and the machine suggest about a value: its expected effect, and whether its seeds come first.

There is one row for each circumstance, so that both follow from the same rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autocompile.search.choose.evidence import Evidence
from autocompile.space.usual import Feature, Usual, feature


@dataclass(frozen=True)
class Circumstance:
    """A circumstance: where it `holds`, the values have the effects in `usual`, for the `reason` given in words.

    None in `usual` means the same effect as everywhere. Seeds with any of the values are moved to the front (`urgency`
    > 0) or to the back (< 0), for the reason that `order` gives.
    """

    holds: Callable[[Evidence], bool]
    usual: Mapping[Feature, Usual | None]
    reason: Callable[[Evidence], str] = lambda _evidence: ""
    urgency: int = 0
    order: Callable[[Evidence], str] = lambda _evidence: ""


# The shares of a step from which the optimizer's implementation matters, and below which it hardly does.
_LARGE_OPTIMIZER, _SMALL_OPTIMIZER = 0.15, 0.03
# The share of a step from which the way to compute attention matters.
_LARGE_ATTENTION = 0.1


def _always(words: str) -> Callable[[Evidence], str]:
    return lambda _evidence: words


def _optimizer_takes(evidence: Evidence) -> str:
    return f"the optimizer takes {evidence.optimizer_share:.0%} of a step"


def _attention_takes(evidence: Evidence) -> str:
    return f"attention takes {evidence.profile.attention_share:.0%} of a step, whose backward kernel is slow in bf16"


# Where several rows hold for the same values, the last one decides the usual effect.
CIRCUMSTANCES = (
    Circumstance(
        lambda evidence: evidence.on_cpu,
        {feature(amp="fp16"): Usual(0.5, 0.3, cost=0.2), feature(threads=1): Usual(0.5, 0.3)},
        _always("on a CPU"),
    ),
    Circumstance(
        lambda evidence: evidence.starting_bounds_cpu,
        {feature(threads=1): Usual(0.0, 0.3)},
        _always("starting operators limits its speed, and more threads do not help"),
    ),
    Circumstance(
        lambda evidence: evidence.gpu_starves,
        {
            feature(mode="reduce-overhead"): Usual(-0.6, 0.4, cost=0.1),
            feature(mode="max-autotune"): Usual(-0.6, 0.4, cost=0.7),
        },
        _always("the GPU waits for kernel launches, so CUDA graphs help"),
        urgency=2,
        order=lambda evidence: (
            f"the GPU is busy {evidence.profile.busy:.0%} of the time and waits for launches: CUDA graphs first"
        ),
    ),
    Circumstance(
        lambda evidence: not evidence.on_cpu and evidence.profile.bound == "compute",
        {feature(float32="tf32"): Usual(-0.7, 0.5)},
        _always("float32 matrix products limit its speed, and TF32 computes them several times as fast"),
        urgency=1,
        order=lambda _evidence: "matrix products limit its speed, and are several times as fast in TF32: tried first",
    ),
    Circumstance(
        lambda evidence: evidence.breaks_into_many,
        {feature(scope="blocks"): Usual(-0.2, 0.3, cost=-0.8)},
        _always("the whole model breaks into more graphs than it has repeated blocks, which may compile whole"),
        urgency=2,
        order=lambda evidence: (
            f"{len(evidence.profile.graph_breaks)} graph breaks in the whole model: its repeated blocks are tried first"
        ),
    ),
    Circumstance(
        lambda evidence: evidence.on_cpu and evidence.has_matrix_unit,
        {feature(amp="bf16"): Usual(-0.3, 0.4, cost=0.2)},
        urgency=1,
        order=lambda _evidence: "this CPU has an AMX unit for bf16: tried first",
    ),
    Circumstance(
        lambda evidence: evidence.on_cpu and evidence.has_half_instructions,
        {feature(amp="bf16"): Usual(-0.25, 0.35, cost=0.2)},
        _always("this CPU has instructions for bf16"),
        urgency=1,
        order=lambda _evidence: "this CPU has instructions for bf16: tried first",
    ),
    Circumstance(
        lambda evidence: evidence.on_cpu and not (evidence.has_matrix_unit or evidence.has_half_instructions),
        {feature(amp="bf16"): Usual(0.7, 0.4, cost=0.2)},
        _always("this CPU has no instructions for bf16"),
        urgency=-1,
        order=lambda _evidence: (
            "this CPU has no instructions for bf16, where autocast is usually slower than float32: tried last"
        ),
    ),
    Circumstance(
        lambda evidence: evidence.trains and evidence.profile.attention_share >= _LARGE_ATTENTION,
        {
            feature(attention="math"): Usual(0.02, 0.1),
            feature(amp="bf16", attention="math"): Usual(-0.25, 0.25, cost_deviation=0.1),
        },
        _attention_takes,
    ),
    Circumstance(
        lambda evidence: bool(evidence.profile.graph_breaks),
        {feature(scope="around-breaks"): Usual(-0.1, 0.3)},
        _always("the parts that break the graph can stay in eager"),
    ),
    Circumstance(
        lambda evidence: evidence.signature_count > 1,
        {
            feature(dynamic="dynamic"): Usual(-0.1, 0.25, cost=0.2),
            feature(dynamic="marked"): Usual(-0.15, 0.25, cost=0.1),
            feature(dynamic="buckets"): Usual(-0.15, 0.3, cost=0.6),
        },
        _always("inputs come in several sizes, and each may need another compilation"),
    ),
    Circumstance(
        lambda evidence: evidence.optimizer_share >= _LARGE_OPTIMIZER,
        {feature(optimizer="fused"): Usual(-0.15, 0.15)},
        lambda evidence: f"{_optimizer_takes(evidence)}, and a fused update saves most of that",
        urgency=1,
        order=lambda evidence: f"{_optimizer_takes(evidence)}: a fused one is tried first",
    ),
    Circumstance(
        lambda evidence: 0 < evidence.optimizer_share < _SMALL_OPTIMIZER,
        {feature(optimizer=name): Usual(0.0, _SMALL_OPTIMIZER) for name in ("fused", "foreach")},
        lambda evidence: f"{_optimizer_takes(evidence)}, so its implementation makes little difference",
    ),
)
