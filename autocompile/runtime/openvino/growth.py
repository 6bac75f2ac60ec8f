"""Compute how large the integers of a call may be, so that no result of a program exceeds 32 bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram

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
            growth[node] = _grown(node, [growth[one] for one in node.all_input_nodes if one in growth])
            for position, factor in growth[node].items():
                factors[position] = max(factors[position], factor)
    return tuple(MOST // factor for factor in factors)


def _grown(node: Any, of: Sequence[Mapping[int, int]]) -> Mapping[int, int]:
    """Return by which factor the integers of each input may have grown in the node's result.

    `of`: the same for the integers that the node is computed from. It is empty for those that do not depend on the
    values of a call, such as positions.
    """
    name = str(getattr(node.target, "overloadpacket", node.target)).rpartition(".")[2]
    if not any(of) or name in _OF_THE_SHAPE:
        return {}
    if name in _BEYOND:
        raise NotPackable(f"it multiplies integers of a call ({name}), and OpenVINO computes them in 32 bits")
    factor = _SUMMED if _accumulates(node, name) else _FACTORS.get(name, 1)
    return {position: factor * max(one.get(position, 1) for one in of) for position in {p for one in of for p in one}}


def _accumulates(node: Any, name: str) -> bool:
    return name in ("index_put", "index_put_") and (node.args[3:4] == (True,) or bool(node.kwargs.get("accumulate")))


def _is_integer(node: Any) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype is torch.int64
