"""What a candidate means: everything that is done to the model, and nothing else."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from autocompile.core.serde import Record

# The runtime of the baseline: the model as it is.
EAGER = "eager"


class AxisRange(Record, frozen=True):
    """An axis of an argument (the `leaf` among all flattened ones) whose size varies from `low` to `high`."""

    leaf: int
    axis: int
    low: int
    high: int


class Plan(Record, frozen=True):
    """How to run the model. Two candidates with equal plans build the same program.

    `runtime`: the name of what runs it. `settings`: that runtime's own record as plain JSON, without what is as by
    default; the runtime's room has its fields. What all runtimes share: `autocast`, the reduced dtype, or "";
    `float32`, what matrix products of float32 tensors are computed in on a GPU, `tf32`, or "" for what is set;
    `memory_format`, `channels_last`, or "" to leave it; `threads`, CPU threads within an operator, or 0 to leave
    torch's own; `batch`, samples in a call, or 0 for as many as were given; `sizes`, `fixed` for programs that take the
    sizes that were given and no others, or "" for as many as can be had; `optimizer`, which of the optimizer's
    implementations trains, `foreach` or `fused`, `compiled` for its step as one compiled program, or "" for the one
    that was given; `recomputed`, paths of submodules
    whose activations are computed again in the backward pass; `micro_batches`, equal parts that each batch of a step is
    cut into, whose gradients are added up.
    """

    runtime: str = EAGER
    settings: dict[str, Any] = {}
    autocast: str = ""
    memory_format: str = ""
    threads: int = 0
    batch: int = 0
    sizes: str = ""
    optimizer: str = ""
    recomputed: tuple[str, ...] = ()
    micro_batches: int = 1
    float32: str = ""

    @property
    def precision(self) -> str:
        """The dtype in which matrix products are computed, as `core.tolerance` names it; "" is the model's own."""
        return self.autocast or self.float32

    @property
    def is_eager(self) -> bool:
        """Whether it is run as the baseline is, operator by operator."""
        return self.runtime == EAGER

    @property
    def key(self) -> str:
        """A short digest; equal plans have equal keys, on every machine, however their settings are ordered."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:16]
