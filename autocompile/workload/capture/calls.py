"""Match inputs with a model's signature: select a batch's arguments, and find samples that are not valid calls."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from autocompile.core.errors import InvalidWorkload
from autocompile.workload.samples import Sample

_POSITIONAL = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD


def accepted(batch: Any, model: Any) -> tuple[Any, str]:
    """Return a batch without what the model does not take, such as labels, and a note on what was left out."""
    signature = _signature(model)
    parameters = signature.parameters.values() if signature else ()
    kinds = {parameter.kind for parameter in parameters}
    if signature is None:
        return batch, ""
    if isinstance(batch, Mapping):
        left_out = [] if inspect.Parameter.VAR_KEYWORD in kinds else [n for n in batch if n not in signature.parameters]
        kept = {name: value for name, value in batch.items() if name not in left_out}
        named = ", ".join(f"`{name}`" for name in left_out)
        were = "were" if len(left_out) > 1 else "was"
        told = f"{named} {were} left out of every batch, because the model takes no such argument"
        return kept, told if left_out else ""
    if not isinstance(batch, tuple) or inspect.Parameter.VAR_POSITIONAL in kinds:
        return batch, ""
    count = max(1, sum(p.kind in _POSITIONAL and p.default is inspect.Parameter.empty for p in parameters))
    if count >= len(batch):
        return batch, ""
    which = "only the first" if count == 1 else f"the first {count}"
    rest = ", ".join(f"[{position}] ({_kind(batch[position])})" for position in range(count, len(batch)))
    asked = f"{which} of the {len(batch)} elements of every batch went to the model, which takes no more"
    return batch[:count], f"{asked}; left out: {rest}"


def _kind(part: Any) -> str:
    return f"{str(part.dtype).removeprefix('torch.')} tensor" if isinstance(part, torch.Tensor) else type(part).__name__


def check_alike(model: Any, samples: Sequence[Sample]) -> None:
    """Raise InvalidWorkload if samples have different arguments and the model does not accept one of them.

    The message names two samples and how they differ. Samples may give an optional argument or leave it out, by
    position or by name, as long as the model takes it.
    """
    signature = _signature(model)
    other = next((n for n, sample in enumerate(samples) if _words(sample) != _words(samples[0])), None)
    if signature is None or other is None:
        return
    for position, sample in enumerate(samples):
        try:
            signature.bind(*sample.args, **sample.kwargs)
        except TypeError as fault:
            compared = other if position == 0 else 0
            raise InvalidWorkload(
                f"has {_words(sample)} where inputs[{compared}] has {_words(samples[compared])}, and the model "
                f"does not take it ({fault})",
                where=f"inputs[{position}]",
                remedy="give only samples that the model accepts",
            ) from fault


def _signature(model: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(model.forward if isinstance(model, nn.Module) else model)
    except (TypeError, ValueError):  # a builtin may have no signature
        return None


def _words(sample: Sample) -> str:
    count, names = len(sample.args), ", ".join(sorted(sample.kwargs))
    arguments = f"{count} positional argument{'s' * (count != 1)}"
    return f"{arguments} and {names}" if names else arguments
