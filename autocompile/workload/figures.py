"""Summarize what a unit of work did as vectors, so that distributions over many runs can be compared."""

from __future__ import annotations

import torch

from autocompile.workload.observation import Observation

# Of larger tensors, this many elements are looked at. The norm is that of all elements.
_MOST_ELEMENTS = 4096


def figures_of(seen: Observation) -> dict[str, torch.Tensor]:
    """Return the elements and the norm of each observed tensor, in double precision on the CPU.

    The norm distinguishes elements that vary together from elements that vary independently. Of large tensors, only
    elements at randomly chosen places are returned. The places are the same every time.
    """
    figures = {}
    for name, leaf in seen.leaves.items():
        if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided and leaf.numel() and not leaf.is_complex():
            flat = leaf.reshape(-1)
            figures[name] = _some(flat).double().cpu()
            figures[f"the norm of {name}"] = flat.double().square().sum().sqrt().cpu().reshape(1)
    return figures


def _some(flat: torch.Tensor) -> torch.Tensor:
    if flat.numel() <= _MOST_ELEMENTS:
        return flat
    places = torch.randint(flat.numel(), (_MOST_ELEMENTS,), generator=torch.Generator().manual_seed(0))
    return flat[places.to(flat.device)]
