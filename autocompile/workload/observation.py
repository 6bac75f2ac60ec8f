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

# The methods that return the parts of a sparse tensor, by its layout.
_SPARSE = {
    torch.sparse_coo: ("indices", "values"),
    **dict.fromkeys((torch.sparse_csr, torch.sparse_bsr), ("crow_indices", "col_indices", "values")),
    **dict.fromkeys((torch.sparse_csc, torch.sparse_bsc), ("ccol_indices", "row_indices", "values")),
}
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
    found = (part for path, leaf in named for part in parts(f"output{path}", leaf))
    leaves = {name: value for where, part in found for name, value in shown(where, part)}
    leaves.update(input_leaves(sample))
    for name, tensor in state.named():
        leaves.update(shown(after_call(name), tensor))
    return Observation(own, leaves, str(spec))


def input_leaves(sample: Sample) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield copies of the tensors among the inputs, as they are after the work."""
    for name, leaf in named_parts(sample):
        if isinstance(leaf, torch.Tensor):
            yield from shown(after_call(f"input{name}"), leaf)


def shown(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a copy of a value under its name. A sparse tensor, which cannot be compared, is shown by its parts."""
    names = _SPARSE.get(value.layout) if isinstance(value, torch.Tensor) else None
    if names is None:
        yield name, _detached(value)
        return
    tensor = value.detach()
    tensor = tensor.coalesce() if tensor.layout is torch.sparse_coo else tensor
    yield f"{name} (size)", torch.tensor(tensor.shape)
    for part in names:
        yield f"{name} ({part})", getattr(tensor, part)().clone()


def gradient_of(name: str) -> str:
    """Return the name in an observation of a parameter's gradient."""
    return f"gradient of {name}"


def after_call(name: str) -> str:
    """Return the name in an observation of an input or a part of the state after the call."""
    return f"{name} after the call"


def _detached(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf
