"""What people do by hand to train a model faster, in a few lines each: from a workload to a step on a batch."""

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
    """`step` does a step of training on a batch, and returns its loss; `model` and the optimizer are changed by it."""

    model: nn.Module
    step: Step


def by_hand(work: Workload, *, fused: bool = False, bf16: bool = False, compiled: bool = False) -> Loop:
    """A usual loop, with these changes of it."""
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
    """Whether there are instructions for bfloat16; nobody would take it where there are none."""
    return torch.cuda.is_bf16_supported() if device == "cuda" else computes_in("bfloat16")


def ways(device: str) -> list[str]:
    """Those that somebody would take on a device of this type."""
    return [way for way in WAYS if "bf16" not in way or has_bf16(device)]
