"""Find ways for a training step to use less memory: splitting batches, and recomputing blocks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from msgspec.structs import replace

from autocompile.core.profile import Profile, RepeatedBlock
from autocompile.trial.check.cut_proof import STEPS_OF_A_CUT_PROOF, cut_problems
from autocompile.workload.samples import Sample, clone
from autocompile.workload.step import Step
from autocompile.workload.training.step import TrainingStep

_PROOF_SHARE = 0.1


def with_savings(
    profile: Profile, eager: Step, samples: Sequence[Sample], step_s: float, left_s: float, *, cuts: bool
) -> Profile:
    """Add to the profile whether batches may be split and blocks recomputed.

    Splitting is not tried if `cuts` is False, or if too little of the budget is left.
    """
    if not isinstance(eager, TrainingStep):
        return profile
    problem = recompute_problem(eager, samples[0], profile.blocks) if profile.blocks else ""
    worth = cuts and STEPS_OF_A_CUT_PROOF * step_s <= _PROOF_SHARE * left_s
    return replace(profile, recompute_problem=problem, micro_batches=cut_problems(eager, samples) if worth else {})


def recompute_problem(step: TrainingStep, sample: Sample, blocks: Sequence[RepeatedBlock]) -> str:
    """Return why these blocks cannot be computed twice in a step (a buffer would be changed twice), or ""."""
    assert step.module is not None
    parts = {path: step.module.get_submodule(path) for block in blocks for path in block.paths}
    buffers = {f"{path}.{name}": buffer for path, part in parts.items() for name, buffer in part.named_buffers()}
    with step.preserved():
        before = {name: buffer.detach().clone() for name, buffer in buffers.items()}
        step.work(clone(sample))
        changed = [name for name, buffer in buffers.items() if not torch.equal(buffer, before[name])]
    return f"{changed[0]} changes at every step, and would be changed twice" if changed else ""
