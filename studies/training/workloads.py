"""The training workloads: a model with random weights, a loss, an optimizer and batches, the same each time.

Six workloads run on every machine. Three larger ones run only on a GPU.
"""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from networks import Encoder, Recurrent, ResNet, UNet, VisionTransformer, perceptron
from torch import nn
from torch.nn import functional
from torch.optim import SGD, AdamW, Optimizer
from torch.utils import _pytree as pytree

BATCHES = 4
Batch = Any


@dataclass(frozen=True)
class Kind:
    """How a workload is made: `batch` makes a batch of a given size, and `samples` is its size in the study.

    `loss` is called with the model and a batch, `optimizer` with the parameters and further settings. `clip_norm` is
    the norm to which gradients are clipped, or None. `needs_gpu`: the workload is too large for a CPU.
    """

    model: Callable[[], nn.Module]
    batch: Callable[[int], Batch]
    samples: int
    loss: Callable[[Any, Batch], torch.Tensor]
    optimizer: Callable[..., Optimizer]
    clip_norm: float | None = None
    needs_gpu: bool = False


@dataclass(frozen=True)
class Workload:
    """A model in training mode and its batches, on a device; the other fields are as in `Kind`."""

    model: nn.Module
    batches: tuple[Batch, ...]
    loss: Callable[[Any, Batch], torch.Tensor]
    optimizer: Callable[..., Optimizer]
    clip_norm: float | None
    device: str


def classified(model: Any, batch: Batch) -> torch.Tensor:
    """Return the cross entropy of classes or of next tokens."""
    inputs, labels = batch
    return functional.cross_entropy(model(inputs).flatten(0, -2), labels.flatten())


def fitted(model: Any, batch: Batch) -> torch.Tensor:
    """Return the mean squared error."""
    inputs, targets = batch
    return functional.mse_loss(model(inputs), targets)


def denoised(model: Any, batch: Batch) -> torch.Tensor:
    """Return the mean squared error of the predicted noise in images."""
    images, time, noise = batch
    share = time[:, None, None, None]
    return functional.mse_loss(model((1 - share).sqrt() * images + share.sqrt() * noise, time), noise)


def own(model: Any, batch: Batch) -> torch.Tensor:
    """Return the loss that the model computes itself."""
    return model(**batch).loss  # type: ignore[no-any-return]


def pictures(size: int, classes: int, samples: int) -> Batch:
    """Return images of `size` x `size` and their classes; the class determines the brightness."""
    labels = torch.randint(classes, (samples,))
    return torch.randn(samples, 3, size, size) + (labels / classes)[:, None, None, None], labels


def texts(words: int, length: int, samples: int) -> torch.Tensor:
    """Return sequences of consecutive tokens, each from a random first token."""
    return (torch.randint(words, (samples, 1)) + torch.arange(length)) % words


def continued(words: int, length: int, samples: int) -> Batch:
    """Return texts, and the next token for each token."""
    tokens = texts(words, length + 1, samples)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def labelled(words: int, length: int, classes: int, samples: int) -> Batch:
    """Return texts and their classes; the first token determines the class."""
    tokens = texts(words, length, samples)
    return tokens, tokens[:, 0] * classes // words


def noisy(size: int, samples: int) -> Batch:
    """Return images, their noise levels (0 to 1), and the noise."""
    return torch.rand(samples, 3, size, size), torch.rand(samples), torch.randn(samples, 3, size, size)


def measured(samples: int) -> Batch:
    """Return samples of 256 numbers, and a target that is a function of them."""
    inputs = torch.randn(samples, 256)
    return inputs, inputs[:, :8].sum(1, keepdim=True).tanh()


def gpt_model() -> nn.Module:
    """Return a GPT-2 of 4 layers of 256, with its dropout."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(n_layer=4, n_head=4, n_embd=256, vocab_size=8000, n_positions=128, use_cache=False)
    )


def gpt_batch(samples: int) -> Batch:
    """Return samples of 64 tokens; the model shifts the labels itself."""
    tokens = texts(8000, 64, samples)
    return {"input_ids": tokens, "labels": tokens}


adamw = partial(AdamW, lr=1e-3, weight_decay=0.01)
sgd = partial(SGD, lr=0.02, momentum=0.9, weight_decay=1e-4)
KINDS = {
    # 6 layers of 192; 16 images of 64 x 64.
    "vit": Kind(
        partial(VisionTransformer, 6, 192, 3, size=64, classes=100), partial(pictures, 64, 100), 16, classified, adamw
    ),
    # 8 sequences of 64 tokens.
    "gpt": Kind(gpt_model, gpt_batch, 8, own, adamw),
    # ResNet-18; 16 images of 64 x 64.
    "resnet": Kind(
        partial(ResNet, (2, 2, 2, 2), wide=False, classes=100), partial(pictures, 64, 100), 16, classified, adamw
    ),
    # A language model of 2 layers of 256; 16 sequences of 48 tokens.
    "lstm": Kind(partial(Recurrent, 8000, 256), partial(continued, 8000, 48), 16, classified, adamw, clip_norm=1.0),
    # 4 images of 32 x 32.
    "unet": Kind(UNet, partial(noisy, 32), 4, denoised, adamw),
    # 256 samples.
    "mlp": Kind(perceptron, measured, 256, fitted, partial(sgd, lr=0.1)),
    # ResNet-50; 64 images of 224 x 224.
    "resnet50": Kind(
        partial(ResNet, (3, 4, 6, 3), wide=True, classes=1000), partial(pictures, 224, 1000), 64, classified, sgd,
        needs_gpu=True,
    ),
    # ResNet-18; 128 images of 32 x 32.
    "resnet18_small": Kind(
        partial(ResNet, (2, 2, 2, 2), wide=False, classes=10), partial(pictures, 32, 10), 128, classified, sgd,
        needs_gpu=True,
    ),
    # 6 layers of 512; 128 sequences of 32 tokens.
    "transformer": Kind(
        partial(Encoder, 6, 512, 8, words=8000, length=32, classes=10), partial(labelled, 8000, 32, 10), 128,
        classified, adamw, needs_gpu=True,
    ),
}  # fmt: skip


def device_type() -> str:
    """Return the device of the study: the GPU, if there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def chosen(device: str) -> list[str]:
    """Return the names of the workloads for a device of this type."""
    return [name for name, kind in KINDS.items() if device == "cuda" or not kind.needs_gpu]


def workload(name: str, device: str = "cpu", samples: int | None = None) -> Workload:
    """Return a workload, the same at every call. `samples` overrides the batch size of the study."""
    kind = KINDS[name]
    torch.manual_seed(0)
    model = kind.model().to(device).train()
    batches = [kind.batch(samples or kind.samples) for _ in range(BATCHES)]
    placed = pytree.tree_map(lambda tensor: tensor.to(device), batches)
    return Workload(model, tuple(placed), kind.loss, kind.optimizer, kind.clip_norm, device)
