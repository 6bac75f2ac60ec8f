"""Measure what occupies the memory of a training step.

Activations are the tensors that autograd saves for the backward (`torch.autograd.graph.saved_tensors_hooks`), except
memory that belongs to parameters, buffers or batches. Memory that an operator keeps in its own objects is not counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils import _pytree as pytree

from autocompile.core.step_profile import Phase, StepMemory
from autocompile.trial.step_memory import most_allocated
from autocompile.workload.samples import Sample
from autocompile.workload.training.step import TrainingStep


def step_memory(step: TrainingStep, sample: Sample) -> StepMemory:
    """Measure the memory of a step in two steps, each of which begins without gradients. The caller undoes them."""
    held = _Holders(step.device_type)
    parameters = held.claimed(step.module.parameters())
    buffers = held.claimed(step.module.buffers())
    batches = held.claimed(pytree.tree_leaves((sample.args, sample.kwargs)))
    activations = _activations(step, sample, held)
    gradients = held.claimed(parameter.grad for parameter in step.module.parameters())
    optimizer = held.claimed(pytree.tree_leaves(list(step.optimizer.state.values())))
    step.clear()
    growth = most_allocated(step.device_type, lambda: step.work(sample))
    return StepMemory(
        parameters_bytes=parameters,
        buffers_bytes=buffers,
        gradients_bytes=gradients,
        optimizer_bytes=optimizer,
        activations_bytes=activations,
        batches_bytes=batches,
        peak_bytes=parameters + buffers + optimizer + batches + growth,
    )


class _Holders:
    """The memory of a type of device that is already attributed to a holder."""

    def __init__(self, device_type: str) -> None:
        self._device_type = device_type
        self._known: set[int] = set()

    def fresh(self, leaves: Iterable[Any]) -> dict[int, int]:
        """Return the bytes of each storage that is not attributed yet, by its address."""
        found: dict[int, int] = {}
        for tensor in (part for leaf in leaves for part in _strided(leaf)):
            storage = tensor.untyped_storage()
            if tensor.device.type == self._device_type and storage.data_ptr() not in self._known:
                found[storage.data_ptr()] = storage.nbytes()
        return found

    def claimed(self, leaves: Iterable[Any]) -> int:
        """Return the total bytes of these storages, and mark them as attributed."""
        found = self.fresh(leaves)
        self._known.update(found)
        return sum(found.values())


def _strided(leaf: Any) -> Iterable[torch.Tensor]:
    """Return the tensors with memory that a tensor consists of. A sparse gradient consists of two."""
    if not isinstance(leaf, torch.Tensor):
        return ()
    if leaf.layout == torch.sparse_coo:
        return (leaf._indices(), leaf._values())  # noqa: SLF001  the gradient may not be coalesced
    return (leaf,) if leaf.layout == torch.strided else ()


def _activations(step: TrainingStep, sample: Sample, held: _Holders) -> int:
    """Return the most bytes that one forward saves for the backward."""
    kept: list[dict[int, int]] = [{}]
    forward = False

    def hear(phase: Phase) -> None:
        nonlocal forward
        forward = phase == "forward"
        if forward:
            kept.append({})

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if forward:
            kept[-1].update(held.fresh([tensor]))
        return tensor

    with step.telling(hear), saved_tensors_hooks(keep, lambda tensor: tensor):
        step.work(sample)
    return max(sum(storages.values()) for storages in kept)
