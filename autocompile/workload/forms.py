"""Describe what calls have in common, apart from the sizes of their tensors."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from autocompile.workload.samples import Sample, describe


def form_of(sample: Sample) -> tuple[Any, ...]:
    """Return a key that is equal for calls that differ only in the sizes of their tensors."""
    tensors, constants = describe(sample)
    return tuple((spec.path, spec.dtype, len(spec.shape), spec.device) for spec in tensors), constants


def by_form(samples: Sequence[Sample]) -> list[list[Sample]]:
    """Group the samples that differ only in the sizes of their tensors."""
    forms: dict[Any, list[Sample]] = {}
    for sample in samples:
        forms.setdefault(form_of(sample), []).append(sample)
    return list(forms.values())


def parameter_names(model: Any) -> tuple[str, ...]:
    """Return the names of the model's positional parameters, in order, or none if the signature is unknown."""
    function = model.forward if isinstance(model, torch.nn.Module) else model
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return ()
    return tuple(parameter.name for parameter in parameters if parameter.kind in kinds)
