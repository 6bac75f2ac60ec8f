"""Find tensors that a program would copy although their later changes would not be noticed, such as those in a list.

Changes are noticed, or followed, of a model's parameters, buffers, and tensors that are attributes of modules, and of
the globals and closures of the user's code.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

from autocompile.core.outcome import FailureCause
from autocompile.runtime.base import NotPackable
from autocompile.runtime.held_tensors import HeldTensors


def tensors_in_memory() -> list[torch.Tensor]:
    """Return all tensors with memory.

    If a program that is traced later has a constant with the memory of one of them, it belongs to other code.
    """
    tensors = (thing for thing in gc.get_objects() if type(thing) in (torch.Tensor, nn.Parameter))
    return [tensor for tensor in tensors if tensor.layout is torch.strided and tensor.numel()]


def stranger(name: str, cause: FailureCause = "") -> NotPackable:
    """Return the error for a program that takes such a tensor, by its name in the program."""
    return NotPackable(
        f"it takes a tensor from outside of itself ({name.removeprefix('model.')}): one of a list, an object, a class, "
        "a library or another module; make it a buffer, or make that module a submodule",
        cause,
    )


def refuse_strangers(program: ExportedProgram, earlier: Sequence[torch.Tensor], model: Any) -> None:
    """Raise NotPackable if a program copies a tensor that existed `earlier`, and whose changes are not noticed."""
    noticed = {memory_of(tensor) for tensor in HeldTensors(model).named().values()}
    strange = set(map(memory_of, earlier)) - noticed - {0}
    for name, held in (*program.state_dict.items(), *program.constants.items()):
        if isinstance(held, torch.Tensor) and memory_of(held) in strange:
            raise stranger(name, "no program")


def memory_of(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's memory, or 0 if it has no memory of its own."""
    if tensor.layout is not torch.strided:
        return 0
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # a tensor of a class of its own
        return 0
