"""How large the integers of a call may be, so that nothing that a program computes of them goes beyond 32 bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram

from autocompile.runtime.base import NotPackable
from autocompile.runtime.openvino.integers import MOST

# Of so many elements at most a sum is taken.
_SUMMED = 2**16
# What each operation may make of an integer, as a factor; others that give integers leave them as large as they are.
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


def largest(program: ExportedProgram, count: int) -> tuple[int, ...]:
    """For each of the `count` tensors of a call, how large its integers may be.

    Raises NotPackable where integers of the call are multiplied: the library computes with 32 bits, and tells nothing.
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
    """By which factor the integers of each input may have grown in what a node gives."""
    if not of:
        return {}
    name = str(getattr(node.target, "overloadpacket", node.target)).rpartition(".")[2]
    if name in _BEYOND:
        raise NotPackable(f"it multiplies integers of a call ({name}), which OpenVINO computes in 32 bits")
    factor = _FACTORS.get(name, 1)
    return {position: factor * max(one.get(position, 1) for one in of) for position in {p for one in of for p in one}}


def _is_integer(node: Any) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype is torch.int64
