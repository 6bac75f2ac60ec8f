"""Where each of several observed steps begins: at parameters that are the same for everybody who is compared.

Were each step to begin where the last one ended, errors would grow: where a gradient is at rounding level, Adam makes
a step of full size of it, in a direction that is nobody's. So after each step the parameters are put to a place that
depends on a seed alone, near to where they began. They do move, so a step that works with old ones is found out.
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
    """`starts`: all parameters before the first step, copied. `dtypes`: what the user's model has them in.

    `moved`: those that need a gradient. Places are rounded to the user's dtype, so that they are the same in float64.
    """

    starts: Mapping[str, torch.Tensor]
    dtypes: Mapping[str, torch.dtype]
    moved: frozenset[str]
    seed: int

    def place(self, name: str, number: int) -> torch.Tensor:
        """Where a parameter is at the beginning of a step, in the dtype of its start.

        Before the first step it is where it was. Afterwards each element is off by some 1/16 of their root mean square.
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
