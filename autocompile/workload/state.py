"""What a unit of work changes besides its outputs, and how to restore it: the same tensors, with their old values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer


@dataclass(frozen=True)
class Kept:
    """An object and its contents: a tensor's values or a container's items. Other objects have none."""

    held: Any
    contents: Any = None

    def back(self) -> Any:
        """Return the same object, with its contents restored."""
        if isinstance(self.held, torch.Tensor):
            self.held.copy_(self.contents)
        elif isinstance(self.held, dict):
            items = {key: item.back() for key, item in self.contents.items()}
            self.held.clear()
            self.held.update(items)
        elif isinstance(self.held, list):
            self.held[:] = [item.back() for item in self.contents]
        elif isinstance(self.held, tuple):
            for item in self.contents:
                item.back()
        return self.held


def keep(held: Any, known: dict[int, Kept] | None = None) -> Kept:
    """Copy what `held` contains now. Objects that are in `known`, by id, are not copied again."""
    known = {} if known is None else known
    if id(held) not in known:
        known[id(held)] = Kept(held, _contents(held, known))
    return known[id(held)]


def _contents(held: Any, known: dict[int, Kept]) -> Any:
    if isinstance(held, torch.Tensor):
        return held.detach().clone()
    if isinstance(held, dict):
        return {key: keep(item, known) for key, item in held.items()}
    if isinstance(held, list | tuple):
        return [keep(item, known) for item in held]
    return None


@dataclass(frozen=True)
class Slot:
    """Where something is held: an attribute of an object, a buffer of a module, the gradient of a parameter."""

    owner: Any
    name: str
    kept: Kept

    def restore(self) -> None:
        """Put the object back if another one has taken its place, and restore its contents."""
        held = self.kept.back()
        if getattr(self.owner, self.name, None) is not held:
            setattr(self.owner, self.name, held)


@dataclass(frozen=True)
class RandomState:
    """The state of torch's generators.

    Those of Python and NumPy are not restored: a model that draws from them is not repeatable.
    """

    cpu: torch.Tensor
    cuda: tuple[torch.Tensor, ...] = ()

    @staticmethod
    def now() -> RandomState:
        """Return the current state. This does not initialize CUDA."""
        started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        return RandomState(torch.get_rng_state(), tuple(torch.cuda.get_rng_state_all()) if started else ())

    def restore(self) -> None:
        """Restore this state, so that the same random numbers are drawn again."""
        torch.set_rng_state(self.cpu)
        if self.cuda:
            torch.cuda.set_rng_state_all(self.cuda)


@dataclass(frozen=True)
class Snapshot:
    """Everything that a unit of work may change, as it was."""

    slots: tuple[Slot, ...]
    optimizers: tuple[Kept, ...]
    random: RandomState

    def restore(self) -> None:
        """Restore everything in place: the same tensors hold the same values again."""
        self.restore_but_random()
        self.random.restore()

    def restore_but_random(self) -> None:
        """Restore everything except the random state."""
        with torch.no_grad():
            for slot in self.slots:
                slot.restore()
            for optimizer in self.optimizers:
                optimizer.back()


@dataclass(frozen=True)
class State:
    """What a unit of work may change: its module's buffers, and if it `learns`, weights, gradients and optimizers."""

    module: nn.Module | None = None
    learns: bool = False
    optimizers: tuple[Optimizer, ...] = ()

    def snapshot(self) -> Snapshot:
        """Return a copy of the current state. This doubles the memory that the state takes."""
        known: dict[int, Kept] = {}
        slots = [Slot(owner, name, keep(tensor, known)) for owner, name, tensor in self._places()]
        parts = [part for one in self.optimizers for part in (one.state, one.param_groups)]
        return Snapshot(tuple(slots), tuple(keep(part, known) for part in parts), RandomState.now())

    def named(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield its tensors, each with its name in messages."""
        if self.module is None:
            return
        yield from ((f"buffer {name}", buffer) for name, buffer in self.module.named_buffers())
        if not self.learns:
            return
        names = {id(parameter): name for name, parameter in self.module.named_parameters()}
        for name, parameter in self.module.named_parameters():
            yield f"parameter {name}", parameter
            if parameter.grad is not None:
                yield f"gradient of {name}", parameter.grad
        for optimizer in self.optimizers:
            for owner, held in optimizer.state.items():
                yield from (
                    (f"optimizer's {key} of {names.get(id(owner), 'a parameter')}", value)
                    for key, value in held.items()
                    if isinstance(value, torch.Tensor)
                )

    def fixed(self) -> Iterator[nn.Parameter]:
        """Yield the parameters that are only read. Several units of work may share them.

        A parameter that shares its memory with a buffer is left out, because it may be written to through that buffer.
        """
        if self.module is None or self.learns:
            return
        written = {_memory_of(buffer) for buffer in self.module.buffers()}
        yield from (parameter for parameter in self.module.parameters() if _memory_of(parameter) not in written)

    def shared_with(self, other: State) -> dict[str, torch.Tensor]:
        """Return, by name, the tensors that this unit may change and that the other's module has too."""
        if other.module is None:
            return {}
        theirs = {id(tensor) for tensor in (*other.module.parameters(), *other.module.buffers())}
        changed = theirs - {id(parameter) for parameter in self.fixed()}
        return {name: tensor for name, tensor in self.named() if id(tensor) in changed}

    def _places(self) -> Iterator[tuple[Any, str, torch.Tensor | None]]:
        for module in self.module.modules() if self.module is not None else ():
            yield from ((module, name, buffer) for name, buffer in module.named_buffers(recurse=False))
            if self.learns:
                for name, parameter in module.named_parameters(recurse=False):
                    yield module, name, parameter
                    yield parameter, "grad", parameter.grad


def _memory_of(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's memory, equal for tensors that share it, or the tensor's id if it has none."""
    try:
        return tensor.untyped_storage().data_ptr() or id(tensor)
    except (NotImplementedError, RuntimeError):  # sparse ones, and some of other libraries
        return id(tensor)
