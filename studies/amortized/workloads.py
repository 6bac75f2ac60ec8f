"""The models of the study: a stencil, MobileNetV2, a small image classifier and a transformer encoder."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.functional import conv2d


class Stencil(nn.Module):
    """Explicit steps of a reaction-diffusion equation on a grid: many small elementwise operations."""

    def __init__(self, steps: int = 8) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        """Map (height, width) to (height, width), periodic."""
        for _ in range(self.steps):
            around = u.roll(1, 0) + u.roll(-1, 0) + u.roll(1, 1) + u.roll(-1, 1)
            u = u + 0.1 * (around - 4 * u) + 0.01 * u * (1 - u * u)
        return u


class Classifier(nn.Module):
    """A small image classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(16, 3, 3, 3) * 0.2)
        self.second = nn.Parameter(torch.randn(32, 16, 3, 3) * 0.1)
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (batch, 3, height, width) to (batch, 10)."""
        x = torch.relu(conv2d(x, self.first))
        x = torch.relu(conv2d(x, self.second))
        return self.head(x.mean((2, 3)))


class Encoder(nn.Module):
    """Four transformer layers."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(192, 4, 512, batch_first=True, dropout=0.0)
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (batch, length, 192) to (batch, length, 192)."""
        return self.layers(x)


def mobilenet() -> tuple[Any, Any]:
    """MobileNetV2, random weights: 3.5 million parameters, one image of 224 x 224."""
    from transformers import MobileNetV2Config, MobileNetV2Model

    return MobileNetV2Model(MobileNetV2Config()).eval(), {"pixel_values": torch.randn(1, 3, 224, 224)}


WORKLOADS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "stencil": lambda: (Stencil().eval(), torch.rand(512, 512)),
    "mobilenet": mobilenet,
    "classifier": lambda: (Classifier().eval(), torch.randn(4, 3, 96, 96)),
    "encoder": lambda: (Encoder().eval(), torch.randn(2, 64, 192)),
}


def workload(name: str) -> tuple[Any, Any]:
    """Return the model and its inputs, the same each time."""
    torch.manual_seed(0)
    return WORKLOADS[name]()
