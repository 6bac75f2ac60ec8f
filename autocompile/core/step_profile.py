"""A step of training from within: what its phases take, and what holds its memory."""

from __future__ import annotations

from typing import Literal

from autocompile.core.bound import Bound
from autocompile.core.serde import Record

# `input`: waiting for the batches. `forward`: the model and the loss. `other`: clearing gradients, adding losses up.
Phase = Literal["input", "forward", "backward", "clipping", "optimizer", "other"]


class StepPhase(Record, frozen=True):
    """What a phase takes of a step, over all batches that the step accumulates, and what bounds it.

    `share` is of the step's time, waiting for its batches included, in 0..1, `ms` the milliseconds that this makes.
    `kernels` and their median length, `flops` (matrix products, convolutions, attention) and `bytes` (operands and
    results of all operators) are per step. `evidence` says in a sentence why it is bound so.
    """

    name: Phase
    share: float
    ms: float
    bound: Bound = "unknown"
    evidence: str = ""
    kernels: int = 0
    median_kernel_us: float = 0.0
    flops: int = 0
    bytes: int = 0


class StepMemory(Record, frozen=True):
    """Bytes on the device by what holds them; what is shared is counted once, with the first of these that holds it.

    `activations`: what a forward keeps for its backward, at the most of the batches that a step accumulates. `peak`:
    the most that was allocated at once in a step, parameters, buffers, the optimizer's state and the batches included.
    Gradients and activations need not be at their most at one time, so the peak may be below the sum.
    """

    parameters_bytes: int
    buffers_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    batches_bytes: int
    peak_bytes: int


class StepProfile(Record, frozen=True):
    """The phases that there are, in their order, and the memory; null where it could not be measured."""

    phases: tuple[StepPhase, ...]
    memory: StepMemory | None = None

    @property
    def optimizer_share(self) -> float:
        """What the optimizer takes of a step, beside the model and the loss, in 0..1.

        Waiting for batches aside: no implementation of the optimizer changes that, and no trial measures it.
        """
        return self.share("optimizer") / (1 - self.share("input"))

    def share(self, name: Phase) -> float:
        """Of a step's time; 0 for a phase that there is not."""
        return sum(phase.share for phase in self.phases if phase.name == name)
