"""The plan of a candidate: everything that is done to the model, and nothing else."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from autocompile.core.serde import Record

# The runtime of the baseline, which runs the model without changes.
EAGER = "eager"


class AxisRange(Record, frozen=True):
    """An axis of an argument (the `leaf` among all flattened ones) whose size varies from `low` to `high`."""

    leaf: int
    axis: int
    low: int
    high: int


class Plan(Record, frozen=True):
    """How to run the model. Two candidates with equal plans build the same program.

    Attributes:
        runtime: The name of the runtime.
        settings: The runtime's own settings as plain JSON, without default values. The fields are defined in the
            runtime's folder.
        autocast: The reduced dtype, or "".
        memory_format: `channels_last`, or "" to keep the format.
        threads: CPU threads within an operator, or 0 to keep torch's number.
        batch: Samples per call, or 0 for as many as were given.
        sizes: `fixed` for programs that only take the sizes that were given, or "" for as wide a range as possible.
        optimizer: The implementation of the optimizer: `foreach`, `fused`, `compiled` (its step as one compiled
            program), or "" for the given one.
        recomputed: Paths of the submodules whose activations are recomputed in the backward pass.
        micro_batches: The number of equal parts into which each batch of a step is cut. Their gradients are summed.
        float32: The precision of float32 matrix products on a GPU: `tf32`, or "" for torch's setting.
        attention: How a CPU computes attention: as separate matrix products and a softmax (`math`), or "" as torch
            chooses.
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
    attention: str = ""

    @property
    def precision(self) -> str:
        """The precision of matrix products, by its name in `core.tolerance`; "" is the model's own."""
        return self.autocast or self.float32

    @property
    def is_eager(self) -> bool:
        """Whether the model runs operator by operator, as the baseline does."""
        return self.runtime == EAGER

    @property
    def keeps_model(self) -> bool:
        """Whether the model runs unchanged, at most with another number of threads."""
        return msgspec.structs.replace(self, threads=0) == Plan()

    @property
    def key(self) -> str:
        """A short digest. Equal plans have equal keys on every machine, in whatever order their settings are."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:16]
