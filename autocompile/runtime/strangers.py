"""Find tensors that a program would copy although their later changes would not be noticed, such as those in a list.

Changes are noticed, or followed, of a model's parameters, buffers, and tensors that are attributes, and of the globals
and closures of the user's code. What a model keeps
from its first call belongs to the program, if that is proved to change no result (`trial/pack/first_call.py`).
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

from autocompile.runtime.base import NotPackable
from autocompile.runtime.held_tensors import HeldTensors

_OWN: ContextVar[frozenset[int]] = ContextVar("own", default=frozenset())


@contextmanager
def made_by_the_model(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """Let the programs that are exported meanwhile have these tensors as constants: the model made them for itself."""
    before = _OWN.set(frozenset(map(memory_of, tensors)))
    try:
        yield
    finally:
        _OWN.reset(before)


def is_made_by_the_model(tensor: torch.Tensor) -> bool:
    """Return whether it is one of the tensors of `made_by_the_model`."""
    return memory_of(tensor) in _OWN.get()


def tensors_in_memory() -> list[torch.Tensor]:
    """Return all tensors with memory, except those that the model made for itself.

    If a program that is traced later has a constant with the memory of one of them, it belongs to other code.
    """
    tensors = (thing for thing in gc.get_objects() if type(thing) in (torch.Tensor, nn.Parameter))
    dense = (tensor for tensor in tensors if tensor.layout is torch.strided and tensor.numel())
    return [tensor for tensor in dense if not is_made_by_the_model(tensor)]


def stranger() -> NotPackable:
    """Return the error for a program that takes such a tensor."""
    return NotPackable(
        "it takes a tensor from outside of itself (a global, or a tensor in a list or in another module); make it a "
        "buffer, or make that module a submodule"
    )


def refuse_strangers(program: ExportedProgram, before: Sequence[torch.Tensor], model: Any) -> None:
    """Raise NotPackable if a program copies a tensor that existed `before`, and whose changes are not noticed."""
    strange = set(map(memory_of, before)) - set(map(memory_of, HeldTensors(model).named().values()))
    for held in (*program.state_dict.values(), *program.constants.values()):
        if isinstance(held, torch.Tensor) and held.layout is torch.strided and memory_of(held) in strange:
            raise stranger()


def memory_of(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's memory."""
    return tensor.untyped_storage().data_ptr()
