"""Everything that a unit of work did, by name, so that it can be compared with another run on the same inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.utils import _pytree as pytree

from autocompile.workload.opaque import parts
from autocompile.workload.samples import Sample, named_leaves, named_parts
from autocompile.workload.state import State

# The name in an observation of the gradient's norm in each step.
NORM = "norm of the gradient"


@dataclass(frozen=True)
class Observation:
    """What a unit of work did: its `output`, and the same flattened and named in `leaves`.

    `leaves` also holds the inputs and the state after the work. `structure` describes the output.
    """

    output: Any
    leaves: dict[str, Any]
    structure: str


class Sequel(Protocol):
    """What must follow, in double precision, from some leaves of an observation, whatever their values."""

    def of(self, leaves: Mapping[str, Any]) -> dict[str, Any]:
        """Return, by name, the leaves that follow from those that were observed."""

    @property
    def rounding(self) -> float:
        """The largest relative error of a factor that a correct implementation may compute from rounded settings."""

    def spacing(self, name: str) -> torch.Tensor | None:
        """Return how far apart distinguishable values of a leaf are, for each element, or None if there is no limit."""


def observed(output: Any, sample: Sample, state: State) -> Observation:
    """Return the output, the inputs and the state after the work, all copied.

    The output is copied first and immediately: CUDA graphs reuse the memory of their output, and the output may be a
    buffer itself.
    """
    own = pytree.tree_map(_detached, output)
    named, spec = named_leaves(own)
    leaves = {name: _detached(part) for path, leaf in named for name, part in parts(f"output{path}", leaf)}
    leaves.update(input_leaves(sample))
    for name, tensor in state.named():
        leaves[after_call(name)] = _detached(tensor)
    return Observation(own, leaves, str(spec))


def input_leaves(sample: Sample) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield copies of the tensors among the inputs, as they are after the work."""
    for name, leaf in named_parts(sample):
        if isinstance(leaf, torch.Tensor):
            yield after_call(f"input{name}"), _detached(leaf)


def gradient_of(name: str) -> str:
    """Return the name in an observation of a parameter's gradient."""
    return f"gradient of {name}"


def after_call(name: str) -> str:
    """Return the name in an observation of an input or a part of the state after the call."""
    return f"{name} after the call"


def _detached(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf
