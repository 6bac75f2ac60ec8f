"""A model with a part excluded from compilation, in its own module because the exclusion imports the compiler."""

import torch
from torch import nn


class Switches(nn.Module):
    """Another scale from its fiftieth call on, which comes while it is being timed."""

    def __init__(self):
        super().__init__()
        self.calls, self.scale = 0, 1

    def forward(self, x):
        self.count()
        return x.sin() * self.scale

    @torch.compiler.disable
    def count(self):
        self.calls += 1
        self.scale = 1 if self.calls < 50 else 2
