"""The profile of a training step as text: its phases, and what uses its memory."""

from __future__ import annotations

from collections.abc import Iterator

from autocompile.core.step_profile import Phase, StepMemory, StepPhase, StepProfile
from autocompile.core.units import format_bytes, format_ms

_NAMES: dict[Phase, str] = {
    "input": "waiting for batches",
    "forward": "forward and loss",
    "backward": "backward",
    "clipping": "gradient clipping",
    "optimizer": "optimizer",
    "other": "clearing gradients",
}
# For a phase with a smaller share of the step, the reason for its bound is not shown.
_WORTH_TELLING = 0.05


def step_lines(step: StepProfile, one: str) -> Iterator[str]:
    """Yield a line for each phase, with its evidence below if its share is large, and a line on memory.

    `one`: what the unit of work is called.
    """
    width = max(len(_NAMES[phase.name]) for phase in step.phases) if step.phases else 0
    if step.phases:
        yield f"{f'time of a {one}':<{width + 2}} {'share':>5} {f'a {one}':>{_widest(one)}} {'kernels':>8}  bound"
    for phase in step.phases:
        yield _phase_line(phase, width, _widest(one))
        if phase.bound != "unknown" and phase.evidence and phase.share >= _WORTH_TELLING:
            yield f"    {phase.evidence}"
    if step.memory:
        yield _memory_line(step.memory, one)


def phases_sentence(step: StepProfile) -> str:
    """Return the phases and their shares, the largest first, without those below 1%."""
    shown = sorted((phase for phase in step.phases if phase.share >= 0.01), key=lambda phase: -phase.share)
    return ", ".join(f"{_NAMES[phase.name]} {phase.share:.0%}" for phase in shown)


def _widest(one: str) -> int:
    return max(10, len(f"a {one}"))


def _phase_line(phase: StepPhase, width: int, widest: int) -> str:
    return (
        f"  {_NAMES[phase.name]:<{width}} {phase.share:>5.0%} {format_ms(phase.ms):>{widest}} "
        f"{phase.kernels or '-':>8}  {phase.bound}"
    )


def _memory_line(memory: StepMemory, one: str) -> str:
    holders = (
        ("parameters", memory.parameters_bytes),
        ("gradients", memory.gradients_bytes),
        ("the optimizer's state", memory.optimizer_bytes),
        ("buffers", memory.buffers_bytes),
        ("activations kept for the backward", memory.activations_bytes),
        ("batches", memory.batches_bytes),
    )
    parts = ", ".join(f"{name} {format_bytes(count)}" for name, count in holders if count)
    return f"memory of a {one}: {parts}; at most {format_bytes(memory.peak_bytes)} at once"
