"""What calls have in common but for the sizes of their tensors."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from autocompile.workload.samples import Sample, describe


def form_of(sample: Sample) -> tuple[Any, ...]:
    """Equal for calls that differ in the sizes of their tensors only."""
    tensors, constants = describe(sample)
    return tuple((spec.path, spec.dtype, len(spec.shape), spec.device) for spec in tensors), constants


def by_form(samples: Sequence[Sample]) -> list[list[Sample]]:
    """Samples that differ in the sizes of their tensors only, together."""
    forms: dict[Any, list[Sample]] = {}
    for sample in samples:
        forms.setdefault(form_of(sample), []).append(sample)
    return list(forms.values())


def parameter_names(model: Any) -> tuple[str, ...]:
    """The model's parameters that may be given by position, in order; none where that cannot be told."""
    function = model.forward if isinstance(model, torch.nn.Module) else model
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return ()
    return tuple(parameter.name for parameter in parameters if parameter.kind in kinds)
