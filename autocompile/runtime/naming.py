"""Names for the tensors of a call and of its output, for use in an exported file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from autocompile.workload.forms import parameter_names
from autocompile.workload.samples import Sample, named_leaves

_POSITIONAL = re.compile(r"\[0\]\[(\d+)\](.*)", re.DOTALL)
_KEYWORD = re.compile(r"\[1\]\['([^']*)'\](.*)", re.DOTALL)


def argument_words(model: Any, sample: Sample) -> list[tuple[str, Any]]:
    """Return each leaf of a call's arguments with its name from the caller's view: `x`, `batch['ids']`."""
    names = parameter_names(model)
    return [(_words(path, names), leaf) for path, leaf in named_leaves((sample.args, sample.kwargs))[0]]


def output_words(spec: Any) -> list[str]:
    """Return the position of each leaf in the output: `output`, `output['logits']`, `output[1][0]`."""
    return [f"output{path}" for path, _leaf in named_leaves(pytree.tree_unflatten(range(spec.num_leaves), spec))[0]]


def identifiers(words: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Turn these texts into valid identifiers that differ from each other and from those in `taken`."""
    used, found = set(taken), []
    for one in words:
        plain = re.sub(r"\W+", "_", one).strip("_") or "tensor"
        name, number = plain, 2
        while name in used:
            name, number = f"{plain}_{number}", number + 1
        used.add(name)
        found.append(name)
    return found


def _words(path: str, names: tuple[str, ...]) -> str:
    by_position, by_keyword = _POSITIONAL.fullmatch(path), _KEYWORD.fullmatch(path)
    if by_position:
        position = int(by_position[1])
        return f"{names[position] if position < len(names) else f'argument_{position}'}{by_position[2]}"
    return f"{by_keyword[1]}{by_keyword[2]}" if by_keyword else f"argument{path}"


def values_range(tensor: torch.Tensor) -> tuple[float | int, float | int]:
    """Return the smallest and the largest finite value of a tensor, or 0 and 1 if there is none."""
    if tensor.dtype is torch.bool or not tensor.numel():
        return 0, 1
    plain = tensor.detach().cpu()
    if not plain.is_floating_point():
        values = plain.numpy()
        return int(values.min()), int(values.max())
    finite = plain.double()[torch.isfinite(plain.double())]
    if not finite.numel():
        return 0.0, 1.0
    return float(f"{finite.min().item():.4g}"), float(f"{finite.max().item():.4g}")
