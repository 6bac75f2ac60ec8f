"""Move parameters by roundings: the same training with other rounding errors."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn


@torch.no_grad()
def shake(parameters: Iterable[nn.Parameter], moves: torch.Generator) -> None:
    """Move each element of the parameters that are trained by up to one rounding error, by random numbers."""
    for parameter in parameters:
        if parameter.requires_grad and parameter.is_floating_point():
            by = torch.rand(parameter.shape, generator=moves).to(parameter.device).mul_(2).sub_(1)
            parameter.addcmul_(parameter, by.to(parameter.dtype), value=torch.finfo(parameter.dtype).eps)
