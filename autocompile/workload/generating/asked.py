"""A function that generates text, such as `model.generate`, as what it is: a model whose decode step can be tuned."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from autocompile.core.errors import InvalidWorkload
from autocompile.workload.generating.generations import Generations
from autocompile.workload.generating.not_tunable import NotTunable
from autocompile.workload.generating.replacing import GENERATES
from autocompile.workload.outermost import outermost_calls
from autocompile.workload.samples import as_samples

if TYPE_CHECKING:  # imports transformers
    from autocompile.workload.generating.generation import Generation

# Calls of the function that are looked at.
_CALLS = 4


def generation_by(function: Any, inputs: Any) -> Generation | None:
    """What `function` generates, by transformers' `generate` of one model; None if it is no such function.

    It is called with some of the inputs to find out, where transformers is imported. Raises InvalidWorkload for inputs
    of no form that is known, or a model whose decode step cannot be tuned.
    """
    if isinstance(function, nn.Module) or not callable(function) or GENERATES not in sys.modules:
        return None
    seen = Generations()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices), seen.open(), outermost_calls(seen.passed):
        called = _as_it_is_now(function)
        for sample in as_samples(inputs)[:_CALLS]:
            called(*sample.args, **sample.kwargs)
            if not seen.seen:
                return None
    generating = [one for one in seen.seen if one.steps]
    if len(generating) != 1:
        return None
    from autocompile.workload.generating.generation import generation_of  # noqa: PLC0415  imports transformers

    try:
        return generation_of(generating[0])
    except NotTunable as fault:
        said = f"its decode step cannot be tuned: {fault}"
        raise InvalidWorkload(
            said, where="model", remedy="give the model itself, with inputs as it is called"
        ) from fault


def _as_it_is_now(function: Any) -> Any:
    """A method of a module looked up again, as it was replaced since it was."""
    owner = getattr(function, "__self__", None)
    return getattr(owner, function.__name__) if isinstance(owner, nn.Module) else function
