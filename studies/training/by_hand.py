"""The usual optimizations of a training loop by hand, a few lines each: from a workload to a step on a batch."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from workloads import Batch, Workload

from autocompile.runtime.openvino.processor import computes_in

Step = Callable[[Batch], torch.Tensor]


@dataclass(frozen=True)
class Loop:
    """A training loop: `step` trains on a batch and returns its loss; it changes `model` and the optimizer."""

    model: nn.Module
    step: Step


def by_hand(work: Workload, *, fused: bool = False, bf16: bool = False, compiled: bool = False) -> Loop:
    """Return a plain training loop with these optimizations."""
    model = torch.compile(work.model) if compiled else work.model
    settings = {"fused": True} if fused else {}
    optimizer = work.optimizer(work.model.parameters(), **settings)

    def step(batch: Batch) -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast(work.device, dtype=torch.bfloat16) if bf16 else nullcontext():
            loss = work.loss(model, batch)
        loss.backward()
        if work.clip_norm is not None:
            nn.utils.clip_grad_norm_(work.model.parameters(), work.clip_norm)
        optimizer.step()
        return loss.detach()

    return Loop(work.model, step)


WAYS: dict[str, Callable[[Workload], Loop]] = {
    "eager": by_hand,
    "fused": partial(by_hand, fused=True),
    "bf16_fused": partial(by_hand, bf16=True, fused=True),
    "compiled_fused": partial(by_hand, compiled=True, fused=True),
    "compiled_bf16_fused": partial(by_hand, compiled=True, bf16=True, fused=True),
}


def has_bf16(device: str) -> bool:
    """Return whether the device has instructions for bfloat16. Without them, bfloat16 would only be slower."""
    return torch.cuda.is_bf16_supported() if device == "cuda" else computes_in("bfloat16")


def ways(device: str) -> list[str]:
    """Return the names of the ways that make sense on a device of this type."""
    return [way for way in WAYS if "bf16" not in way or has_bf16(device)]
