"""Define where each of several observed steps begins: at parameters that are equal for all implementations compared.

If each step began where the previous one ended, errors would grow: where a gradient is at rounding level, Adam makes a
full-size step in an arbitrary direction. Therefore, after each step, the parameters are moved to a place that depends
only on a seed and is near their start. Because they do move, a step that works with outdated parameters is detected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from autocompile.workload.training.recipe import widened

STEPS = 3
_DISTANCE = 1 / 16
_SMALLEST = 1e-2


@dataclass(frozen=True)
class Course:
    """The starting points of several steps.

    `starts` holds copies of all parameters before the first step. `dtypes` are those of the user's model. `moved` names
    the parameters that need a gradient. Places are rounded to the user's dtype, so that they are the same in float64.
    """

    starts: Mapping[str, torch.Tensor]
    dtypes: Mapping[str, torch.dtype]
    moved: frozenset[str]
    seed: int

    def place(self, name: str, number: int) -> torch.Tensor:
        """Return a parameter's values at the beginning of a step, in the dtype of its start.

        Before the first step these are its start. Afterwards each element deviates by about 1/16 of their root mean
        square.
        """
        start = self.starts[name]
        if number == 0 or name not in self.moved:
            return start
        position = list(self.starts).index(name)
        generator = torch.Generator().manual_seed(self.seed + 1000003 * (number + STEPS * position))
        noise = torch.randn(start.shape, generator=generator, dtype=torch.float32).to(start.device)
        wide = widened(start)
        size = max(float(wide.abs().square().mean().sqrt()) if wide.numel() else 0.0, _SMALLEST)
        place: torch.Tensor = (wide + _DISTANCE * size * noise).to(self.dtypes[name])
        return place.to(start.dtype)
