"""All that a unit of work did, by name, so that it can be compared with what another made of the same inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.utils import _pytree as pytree

from autocompile.workload.samples import Sample, named_leaves
from autocompile.workload.state import State

_PLAIN = (str, bytes, int, float, complex, bool, torch.dtype, torch.device)
_DEEPEST = 6
# Under which name an observation has the norm of the gradient in each step.
NORM = "norm of the gradient"


@dataclass(frozen=True)
class Observation:
    """What was done: the `output`, and the same flattened and named in `leaves`.

    `leaves` also holds the inputs and the state afterwards; `structure` describes the output.
    """

    output: Any
    leaves: dict[str, Any]
    structure: str


class Sequel(Protocol):
    """What must follow, in double precision, from some of the leaves of an observation, whatever these are."""

    def of(self, leaves: Mapping[str, Any]) -> dict[str, Any]:
        """The leaves that follow from those that were observed, by name."""

    def spacing(self, name: str) -> torch.Tensor | None:
        """How finely a leaf that follows can be told at all, an element each; None if nothing limits that."""


def observed(output: Any, sample: Sample, state: State) -> Observation:
    """What came out, what became of the inputs and of the state; all of it copied.

    The output first, and at once: CUDA graphs reuse their output's memory, and a buffer may be returned itself.
    """
    own = pytree.tree_map(_detached, output)
    named, spec = named_leaves(own)
    leaves = dict(part for name, leaf in named for part in _opened(f"output{name}", leaf))
    leaves.update(input_leaves(sample))
    for name, tensor in state.named():
        leaves[after_call(name)] = _detached(tensor)
    return Observation(own, leaves, str(spec))


def input_leaves(sample: Sample) -> Iterator[tuple[str, torch.Tensor]]:
    """What became of the tensors among the inputs, copied."""
    for name, leaf in named_leaves((sample.args, sample.kwargs))[0]:
        if isinstance(leaf, torch.Tensor):
            yield after_call(f"input{name}"), _detached(leaf)


def gradient_of(name: str) -> str:
    """Under which name an observation has a parameter's gradient."""
    return f"gradient of {name}"


def after_call(name: str) -> str:
    """Under which name an observation has what became of an input or a part of the state."""
    return f"{name} after the call"


def _opened(name: str, leaf: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """What is in an object that pytree does not know (a cache, a user's dataclass): its attributes, else its type."""
    if isinstance(leaf, torch.Tensor):
        yield name, _detached(leaf)
    elif leaf is None or isinstance(leaf, _PLAIN):
        yield name, leaf
    elif isinstance(leaf, list | tuple) and depth < _DEEPEST:
        for position, item in enumerate(leaf):
            yield from _opened(f"{name}[{position}]", item, depth + 1)
    elif isinstance(leaf, dict) and depth < _DEEPEST:
        for key, item in leaf.items():
            yield from _opened(f"{name}[{key!r}]", item, depth + 1)
    elif hasattr(leaf, "__dict__") and not isinstance(leaf, type) and depth < _DEEPEST:
        yield f"{name} (type)", type(leaf).__qualname__
        for key, item in vars(leaf).items():
            yield from _opened(f"{name}.{key}", item, depth + 1)
    else:
        yield f"{name} (type)", type(leaf).__qualname__


def _detached(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf
