"""The networks that are trained, written in plain torch."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    """Self-attention over all tokens."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.enter, self.leave = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.enter(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        mixed = functional.scaled_dot_product_attention(
            query, key, value, dropout_p=self.dropout if self.training else 0.0
        )
        return self.leave(mixed.transpose(1, 2).reshape(batch, length, width))  # type: ignore[no-any-return]


class Layer(nn.Module):
    """A pre-norm transformer layer: attention, then two linear layers."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(width), Attention(width, heads, dropout), nn.Dropout(dropout))
        self.linear = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
            nn.Dropout(dropout),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x)
        return x + self.linear(x)  # type: ignore[no-any-return]


class VisionTransformer(nn.Module):
    """A classifier of images, with patches of 8 x 8 as tokens."""

    def __init__(self, layers: int, width: int, heads: int, *, size: int, classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, stride=8)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (size // 8) ** 2 + 1, width) * 0.02)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.first.expand(len(tokens), -1, -1), tokens], 1) + self.places
        return self.head(self.norm(self.layers(tokens))[:, 0])  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """A classifier of texts by the mean over their tokens; with dropout."""

    def __init__(self, layers: int, width: int, heads: int, *, words: int, length: int, classes: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.randn(1, length, width) * 0.02)
        self.layers = nn.Sequential(*(Layer(width, heads, dropout=0.1) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.layers(self.words(tokens) + self.places)).mean(1))  # type: ignore[no-any-return]


class Recurrent(nn.Module):
    """A language model: an LSTM of two layers, with dropout between them."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, 2, dropout=0.2, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.words(tokens))[0])  # type: ignore[no-any-return]


def convolution(width: int, out: int, size: int, stride: int = 1) -> nn.Sequential:
    """Return a convolution with batch normalization instead of a bias."""
    return nn.Sequential(nn.Conv2d(width, out, size, stride, size // 2, bias=False), nn.BatchNorm2d(out))


class Residual(nn.Module):
    """A residual block. If `wide`, it has three convolutions, two of them of size 1; otherwise it has two."""

    def __init__(self, width: int, inner: int, stride: int, *, wide: bool) -> None:
        super().__init__()
        out = 4 * inner if wide else inner
        if wide:
            self.path = nn.Sequential(
                convolution(width, inner, 1), nn.ReLU(), convolution(inner, inner, 3, stride), nn.ReLU(),
                convolution(inner, out, 1),
            )  # fmt: skip
        else:
            self.path = nn.Sequential(convolution(width, inner, 3, stride), nn.ReLU(), convolution(inner, out, 3))
        self.skip = nn.Identity() if stride == 1 and width == out else convolution(width, out, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.path(x) + self.skip(x))


class ResNet(nn.Module):
    """A residual network. Depths 2, 2, 2, 2 give ResNet-18; depths 3, 4, 6, 3 with `wide` give ResNet-50."""

    def __init__(self, depths: Sequence[int], *, wide: bool, classes: int) -> None:
        super().__init__()
        blocks, width = [], 64
        for stage, depth in enumerate(depths):
            inner = 64 * 2**stage
            for position in range(depth):
                stride = 2 if stage > 0 and position == 0 else 1
                blocks.append(Residual(width, inner, stride, wide=wide))
                width = 4 * inner if wide else inner
        self.stem = nn.Sequential(convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(images)).mean((2, 3)))  # type: ignore[no-any-return]


class Conditioned(nn.Module):
    """A residual block of two convolutions, with the embedding of the noise level added between them."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.before = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, out, 3, padding=1))
        self.behind = nn.Sequential(nn.GroupNorm(8, out), nn.SiLU(), nn.Conv2d(out, out, 3, padding=1))
        self.time, self.skip = nn.Linear(64, out), nn.Conv2d(width, out, 1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        hidden = self.before(x) + self.time(time)[:, :, None, None]
        return self.behind(hidden) + self.skip(x)  # type: ignore[no-any-return]


class UNet(nn.Module):
    """A small U-Net of two resolutions that predicts the noise in images, given the noise level `time`."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 3, 3, padding=1)
        self.down, self.deep, self.up = Conditioned(32, 64), Conditioned(64, 64), Conditioned(96, 32)
        self.time = nn.Sequential(nn.Linear(16, 64), nn.SiLU(), nn.Linear(64, 64))

    def forward(self, images: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        angles = time[:, None] * torch.arange(1, 9, device=time.device)
        known = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        wide = self.enter(images)
        deep = self.deep(self.down(functional.avg_pool2d(wide, 2), known), known)
        joined = torch.cat([functional.interpolate(deep, scale_factor=2.0), wide], 1)
        return self.leave(self.up(joined, known))  # type: ignore[no-any-return]


def perceptron() -> nn.Sequential:
    """Return an MLP of four linear layers, from 256 numbers to one."""
    layers = [nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(512, 1))
