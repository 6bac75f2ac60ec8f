"""Prove that a step learns the same from equal parts of a batch as from the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from autocompile.trial.check.batch_proof import told_apart
from autocompile.trial.check.reference import as_float64, default_dtype
from autocompile.trial.check.settled import Settled
from autocompile.workload.axes import first_axes
from autocompile.workload.samples import Sample, clone
from autocompile.workload.training.cutting import uncut
from autocompile.workload.training.step import TrainingStep

COUNTS = (2, 4)
# A proof takes at most as long as this many steps: each is done in double precision, once for every part.
STEPS_OF_A_CUT_PROOF = 40
# A tolerance, because parts of a batch are added in another order than the whole, in double precision too.
_SAME = 1e-6
_DIFFERS = (
    "{what} of a batch is not the mean of its parts': its samples influence each other, as by batch statistics, or its "
    "loss is not a mean over them"
)


def cut_problems(step: TrainingStep, samples: Sequence[Sample]) -> dict[str, str]:
    """Return, by number of equal parts, why a batch may not be split into them, or "" if it is proved that it may.

    The proof compares loss, gradients and buffers in double precision, with random numbers replaced by constants
    (`Settled`). It uses a batch as given, and a batch whose samples are made to differ. The step is left unchanged.
    """
    batches = [batch for sample in samples for batch in sample.args]
    problems = {count: next(filter(None, (uncut(batch, count) for batch in batches)), "") for count in COUNTS}
    even = [count for count, problem in problems.items() if not problem]
    if even:
        problem = _problem(step, samples[0], even)
        problems.update(dict.fromkeys(even, problem))
    return {str(count): problem for count, problem in problems.items()}


def _problem(step: TrainingStep, sample: Sample, counts: Sequence[int]) -> str:
    try:
        with default_dtype(torch.float64):
            wide = step.in_float64()
            given = Sample(as_float64(sample).args[:1], {})
            return _differs(wide, given, counts) or _differs_apart(wide, given, counts)
    except Exception as fault:  # a model that does not accept another batch size, or double precision
        said = str(fault).splitlines()
        return f"a step does not accept a part of a batch: {said[0] if said else type(fault).__name__}"


def _differs_apart(wide: TrainingStep, given: Sample, counts: Sequence[int]) -> str:
    """Do the same with samples that differ, unless the loss does not accept such values."""
    apart = told_apart(given, first_axes(given))
    try:
        _learned(wide, apart, 1)
    except Exception:
        return ""
    return _differs(wide, apart, counts)


def _differs(wide: TrainingStep, sample: Sample, counts: Sequence[int]) -> str:
    whole = _learned(wide, sample, 1)
    size = _rms(torch.cat([gradient.flatten() for name, gradient in whole.items() if name.startswith("gradient")]))
    for count in counts:
        parts = _learned(wide, sample, count)
        if parts.keys() != whole.keys():
            return _DIFFERS.format(what="the gradient")
        for name, expected in whole.items():
            off = _rms(parts[name] - expected) if parts[name].shape == expected.shape else float("inf")
            if not off <= _SAME * (_rms(expected) + (size if name.startswith("gradient") else 0.0)):
                return _DIFFERS.format(what=f"the {name}")
    return ""


def _learned(wide: TrainingStep, sample: Sample, count: int) -> dict[str, torch.Tensor]:
    """Return the loss, gradients and buffers of a step on a batch split into `count` parts, before the update."""
    wide.micro_batches = count
    with wide.preserved(), Settled():  # type: ignore[no-untyped-call]
        wide.clear()
        loss = wide.learn(clone(sample).args[0], 1)
        gradients = {
            f"gradient of {name}": parameter.grad.to_dense().clone()
            for name, parameter in wide.parameters.items()
            if parameter.grad is not None
        }
        assert wide.module is not None
        buffers = {f"buffer {name}": buffer.detach().clone() for name, buffer in wide.module.named_buffers()}
        return {"loss": loss, **gradients, **buffers}


def _rms(tensor: Any) -> float:
    return float(tensor.abs().double().square().mean().sqrt()) if tensor.numel() else 0.0
