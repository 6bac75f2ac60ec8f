"""The profile of a training step: the time of its phases, and what uses its memory."""

from __future__ import annotations

from typing import Literal

from autocompile.core.bound import Bound
from autocompile.core.serde import Record

# `input`: waiting for the batches. `forward`: the model and the loss. `other`: clearing gradients, adding losses up.
Phase = Literal["input", "forward", "backward", "clipping", "optimizer", "other"]


class StepPhase(Record, frozen=True):
    """The time of a phase, over all batches that a step accumulates, and what bounds it.

    `share` is the share of the step's time, in 0..1, which includes waiting for batches; `ms` is the same in
    milliseconds. `kernels`, `flops` (matrix products, convolutions, attention) and `bytes` (operands and results of all
    operators) are per step. `evidence` is the reason for `bound`, in a sentence.
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
    """Bytes on the device, by what uses them. Shared memory is counted once, for the first of these that uses it.

    `activations`: what the forward pass keeps for the backward pass, the maximum over the batches that a step
    accumulates. `peak`: the most that was allocated at one time in a step, including parameters, buffers, the
    optimizer's state and the batches. Gradients and activations may reach their maximum at different times, so the peak
    may be smaller than the sum.
    """

    parameters_bytes: int
    buffers_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    batches_bytes: int
    peak_bytes: int


class StepProfile(Record, frozen=True):
    """The phases that occur, in their order, and the memory; null if it could not be measured."""

    phases: tuple[StepPhase, ...]
    memory: StepMemory | None = None

    @property
    def optimizer_share(self) -> float:
        """The optimizer's share of a step, in 0..1, without the time that the step waits for batches.

        Waiting is excluded because no implementation of the optimizer changes it, and no trial measures it.
        """
        return self.share("optimizer") / (1 - self.share("input"))

    def share(self, name: Phase) -> float:
        """Return the share of a phase in a step's time; 0 if the phase does not occur."""
        return sum(phase.share for phase in self.phases if phase.name == name)
