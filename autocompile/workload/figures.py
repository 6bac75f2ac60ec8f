"""What a unit of work did, as vectors whose distribution over many times can be compared."""

from __future__ import annotations

import torch

from autocompile.workload.observation import Observation

# Of more elements than these, so many are looked at; the norm is that of all.
_MOST_ELEMENTS = 4096


def figures_of(seen: Observation) -> dict[str, torch.Tensor]:
    """The elements of each tensor that was observed, and its norm, in double precision on the CPU.

    The norm tells elements that vary together from such as do not. Of large tensors, elements at places that are
    chosen at random are given, the same ones every time.
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
