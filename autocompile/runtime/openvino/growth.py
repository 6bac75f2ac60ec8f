"""Compute how large the integers of a call may be, so that no result of a program exceeds 32 bits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils import _pytree as pytree

from autocompile.runtime.base import NotPackable
from autocompile.runtime.openvino.integers import MOST

# The assumed largest number of elements in a sum.
_SUMMED = 2**16
# The factor by which each operation may enlarge an integer. Other operations do not enlarge integers.
_FACTORS = {
    "add": 2,
    "sub": 2,
    "rsub": 2,
    "sum": _SUMMED,
    "cumsum": _SUMMED,
    "index_add": _SUMMED,
    "scatter_add": _SUMMED,
}
# The position of the argument that says where the values of other arguments are put.
_PLACES = {"index_add": 2, "index_put": 1, "scatter_add": 2}
_BEYOND = frozenset(
    {"mul", "pow", "prod", "cumprod", "matmul", "mm", "bmm", "dot", "addmm", "__lshift__", "bitwise_left_shift"}
)


# The results of these have the shape of an integer tensor, but do not depend on its values.
_OF_THE_SHAPE = frozenset(
    {"empty_like", "full_like", "ones_like", "zeros_like", "new_empty", "new_full", "new_ones", "new_zeros"}
)


def largest(program: ExportedProgram, count: int) -> tuple[int, ...]:
    """Return how large the integers may be for each of the `count` tensors of a call.

    Raises NotPackable if integers of the call are multiplied: the library computes with 32 bits and reports no
    overflow.
    """
    inputs = program.graph_signature.user_inputs
    growth: dict[Any, Mapping[int, int]] = {}
    factors = [1] * count
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in inputs and _is_integer(node):
            growth[node] = {inputs.index(node.name): 1}
        elif node.op == "call_function" and _is_integer(node):
            growth[node] = _grown(node, [growth[one] for one in _values_of(node) if one in growth])
            for position, factor in growth[node].items():
                factors[position] = max(factors[position], factor)
    return tuple(MOST // factor for factor in factors)


def _grown(node: Any, of: Sequence[Mapping[int, int]]) -> Mapping[int, int]:
    """Return by which factor the integers of each input may have grown in the node's result.

    `of`: the same for the integers that the node is computed from. It is empty for those that do not depend on the
    values of a call, such as positions.
    """
    name = _name_of(node)
    if not any(of) or name in _OF_THE_SHAPE:
        return {}
    if name in _BEYOND:
        raise NotPackable(f"it multiplies integers of a call ({name}), and OpenVINO computes them in 32 bits")
    factor = (_SUMMED if _accumulates(node, name) else _FACTORS.get(name, 1)) * _scale_of(node)
    return {position: factor * max(one.get(position, 1) for one in of) for position in {p for one in of for p in one}}


def _name_of(node: Any) -> str:
    """Return the operator's name; operators that work in place are treated like those that do not."""
    name = str(getattr(node.target, "overloadpacket", node.target)).rpartition(".")[2]
    return name if name.endswith("__") else name.removesuffix("_")


def _values_of(node: Any) -> Iterator[Any]:
    """Yield the nodes whose integers may be in the result: all inputs, except those that say where to put others."""
    places = _PLACES.get(_name_of(node))
    values = [argument for position, argument in enumerate(node.args) if position != places]
    yield from (leaf for leaf in pytree.tree_leaves((values, dict(node.kwargs))) if isinstance(leaf, Node))


def _accumulates(node: Any, name: str) -> bool:
    return name == "index_put" and (node.args[3:4] == (True,) or bool(node.kwargs.get("accumulate")))


def _scale_of(node: Any) -> int:
    """Return the factor `alpha` of additions. Raises NotPackable if it is not a number."""
    alpha = node.kwargs.get("alpha", 1)
    if not isinstance(alpha, int | float):
        raise NotPackable("it adds integers of a call times a computed number, and OpenVINO computes them in 32 bits")
    return max(1, math.ceil(abs(alpha)))


def _is_integer(node: Any) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype is torch.int64
