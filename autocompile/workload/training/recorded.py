"""Replay a loss as a script's own code computed it, from the recorded operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

# The key of a batch's tape number. The batch's other entries are tensors.
TAPE = "tape"
_HALF = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Made:
    """A placeholder for a tensor that an earlier operation made."""

    number: int


@dataclass(frozen=True)
class Given:
    """A placeholder for a tensor of the batch, by name. With `needs_gradient`, it is a leaf that needs one."""

    name: str
    needs_gradient: bool = False


@dataclass(frozen=True)
class Constant:
    """A placeholder for a tensor that is the same for all batches, such as a parameter of another model."""

    number: int


@dataclass(frozen=True)
class Own:
    """A placeholder for a parameter of the model, by name."""

    name: str


Place = Made | Given | Constant | Own


@dataclass(frozen=True)
class Operation:
    """A function of torch, or a call of the model (None), with placeholders for the tensors in its arguments.

    `results` are the numbers of the tensors in its result, in order. If it returns None, it has changed its first
    argument, and `results` is the number of that.
    """

    function: Callable[..., Any] | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: tuple[int, ...]


@dataclass(frozen=True)
class Tape:
    """The operations that compute a loss, in order, and the number of the loss."""

    operations: tuple[Operation, ...]
    loss: int

    @property
    def key(self) -> str:
        """Equal for tapes that do the same, whatever the batch."""
        return repr([(_name(one.function), one.args, one.kwargs, one.results) for one in self.operations] + [self.loss])


class RecordedLoss:
    """The loss of a model on a batch, computed by the tape that the batch names.

    The model is called under the autocast that surrounds the loss. Its outputs are then converted to single precision,
    and the operations after it run without autocast, as the script runs them outside the model. The loss is multiplied
    by `count`, the number of batches in a step, because the script has divided it by that number if it means to.
    """

    def __init__(self, tapes: Sequence[Tape], constants: Sequence[torch.Tensor], count: int) -> None:
        self.tapes, self.constants, self.count = tuple(tapes), tuple(constants), count

    def __call__(self, model: Any, batch: Mapping[str, Any]) -> torch.Tensor:
        """Return the loss, with its graph."""
        tape = self.tapes[batch[TAPE]]
        values: dict[int, torch.Tensor] = {}
        leaves: dict[str, torch.Tensor] = {}
        parameters = _Parameters(model)

        def found(place: Any) -> Any:
            if isinstance(place, Made):
                return values[place.number]
            if isinstance(place, Given) and place.needs_gradient:
                return leaves.setdefault(place.name, batch[place.name].detach().requires_grad_())
            if isinstance(place, Given):
                return batch[place.name]
            if isinstance(place, Constant):
                return self.constants[place.number]
            return parameters[place.name] if isinstance(place, Own) else place

        for one in tape.operations:
            args, kwargs = _filled(one.args, found), _filled(one.kwargs, found)
            made = _called(model, args, kwargs) if one.function is None else _plainly(one.function, args, kwargs)
            tensors = (args[0],) if made is None else tensors_of(made)
            values.update(zip(one.results, tensors, strict=False))
        loss = values[tape.loss]
        return loss * self.count if self.count > 1 else loss


def tensors_of(made: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in the result of a call, in order, including those in the attributes of unknown objects."""
    for leaf in pytree.tree_leaves(made):
        if isinstance(leaf, torch.Tensor):
            yield leaf
        elif isinstance(leaf, Mapping):
            yield from tensors_of(dict(leaf))
        elif hasattr(leaf, "__dict__") and not isinstance(leaf, type | nn.Module) and not callable(leaf):
            yield from tensors_of(dict(vars(leaf)))


class _Parameters:
    """A model's parameters by name, looked up when the first one is requested."""

    def __init__(self, model: Any) -> None:
        self._model, self._known = model, None

    _known: dict[str, nn.Parameter] | None

    def __getitem__(self, name: str) -> nn.Parameter:
        if self._known is None:
            self._known = dict(getattr(self._model, "_orig_mod", self._model).named_parameters())
        return self._known[name]


def _called(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the model. Under autocast, convert its outputs to single precision, as the script's own code expects."""
    made = model(*args, **kwargs)
    kind = next((one.device.type for one in tensors_of(made)), "cpu")
    if not torch.is_autocast_enabled(kind):
        return made
    return tuple(one.float() if one.dtype in _HALF else one for one in tensors_of(made))


def _plainly(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    kind = next((one.device.type for one in args if isinstance(one, torch.Tensor)), "cpu")
    if not torch.is_autocast_enabled(kind):
        return function(*args, **kwargs)
    with torch.autocast(kind, enabled=False):
        return function(*args, **kwargs)


def _filled(tree: Any, found: Callable[[Any], Any]) -> Any:
    """Replace placeholders by tensors. Plain containers are handled without pytree, because this runs at every step."""
    if isinstance(tree, Place):
        return found(tree)
    if type(tree) is dict:
        return {name: _filled(value, found) for name, value in tree.items()}
    if type(tree) in (tuple, list):
        return type(tree)(_filled(value, found) for value in tree)
    is_plain = tree is None or isinstance(tree, str | int | float)
    return tree if is_plain else pytree.tree_map(found, tree)


def _name(function: Callable[..., Any] | None) -> str:
    if function is None:
        return "model"
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', function)}"
