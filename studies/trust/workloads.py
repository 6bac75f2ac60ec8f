"""Three models of different cost: about 0.3, 20 and 100 ms per call on a 2-core machine."""

import torch
from torch import nn


class Perceptron(nn.Module):
    """A few small layers."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.GELU())))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (batch, width) to (batch, width)."""
        return self.layers(x)


class Convolutions(nn.Module):
    """A small image classifier without pooling."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, channels, 3), nn.ReLU(), nn.Conv2d(channels, channels, 3), nn.ReLU(), nn.Conv2d(channels, 8, 3)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (batch, 3, height, width) to (batch, 8)."""
        return self.layers(x).mean((2, 3))


def workloads() -> dict[str, tuple[nn.Module, torch.Tensor]]:
    """Return model and input by name, on the GPU if there is one."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    made = {
        "small": (Perceptron(192, 6).eval(), torch.randn(64, 192)),
        "medium": (Convolutions(16).eval(), torch.randn(8, 3, 160, 160)),
        "large": (Convolutions(32).eval(), torch.randn(12, 3, 192, 192)),
    }
    return {name: (model.to(device), inputs.to(device)) for name, (model, inputs) in made.items()}
