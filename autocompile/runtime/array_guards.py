"""Check whether a call with NumPy arrays is one that a program was compiled for. Does not import torch."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from operator import is_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocompile.core.program import ConstantGuard, Program, TensorGuard
from autocompile.runtime.structure import structure_of

Array = NDArray[Any]


def _is_like(given: Any, known: tuple[np.dtype[Any], tuple[int, ...]]) -> bool:
    """Return whether this is a contiguous array of that dtype and shape."""
    is_array = type(given) is np.ndarray and given.dtype is known[0] and given.shape == known[1]
    return is_array and given.flags.c_contiguous


class ArrayGuard:
    """Return the program's arrays from a call's arguments, contiguous and in the program's order, or why not."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._structure = structure_of(program.input_spec)
        self._ranges = {axis.name: (axis.low, axis.high) for axis in program.axes}
        # The dtypes and shapes of the latest call that was accepted as it was: most calls are like the previous one.
        self._latest: tuple[tuple[np.dtype[Any], tuple[int, ...]], ...] = ()

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Array] | str:
        given = self._in_order(args, kwargs)
        if given and len(given) == len(self._latest) and all(map(_is_like, given, self._latest)):
            return given
        accepted = self._examined(args, kwargs)
        if not isinstance(accepted, str) and given and len(given) == len(accepted) and all(map(is_, given, accepted)):
            self._latest = tuple((array.dtype, array.shape) for array in accepted)
        return accepted

    def _in_order(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the arguments in the program's order, or an empty list if there are others."""
        keywords = self._program.keywords
        if len(args) != self._program.positional or len(kwargs) != len(keywords):
            return []
        return [*args, *(kwargs.get(name) for name in keywords)]

    def _examined(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Array] | str:
        program = self._program
        if len(args) != program.positional or kwargs.keys() != set(program.keywords):
            keywords = "".join(f", {name}=" for name in program.keywords)
            return f"the program takes {program.positional} positional arguments{keywords}"
        leaves = self._structure.leaves_of((args, {name: kwargs[name] for name in program.keywords}))
        if leaves is None or len(leaves) != len(program.guards):
            return "its arguments are nested differently"
        arrays: list[Array] = []
        sizes: dict[str, int] = {}
        for guard, leaf in zip(program.guards, leaves, strict=True):
            if isinstance(guard, ConstantGuard):
                if repr(leaf) != guard.literal or type(leaf) is not type(ast.literal_eval(guard.literal)):
                    return f"{guard.path} is {leaf!r:.80}, not {guard.literal}"
                continue
            problem = self._problem(guard, leaf, sizes)
            if problem:
                return problem
            arrays.append(np.ascontiguousarray(leaf) if leaf.ndim else leaf)
        return arrays

    def _problem(self, guard: TensorGuard, leaf: Any, sizes: dict[str, int]) -> str:
        """Return what is wrong with an argument, or "". `sizes` collects the sizes of the named axes seen so far."""
        if not isinstance(leaf, np.ndarray):
            return f"{guard.path} is a {type(leaf).__name__}, not an array"
        if leaf.dtype.name != guard.dtype:
            return f"{guard.path} is {leaf.dtype.name}, not {guard.dtype}"
        if not leaf.dtype.isnative:
            return f"{guard.path} has another byte order than this machine"
        if leaf.ndim != len(guard.shape):
            return f"{guard.path} has {leaf.ndim} axes, not {len(guard.shape)}"
        sized = zip(leaf.shape, guard.shape, strict=True)
        problems = (self._of_size(axis, size, expected, sizes) for axis, (size, expected) in enumerate(sized))
        return next((f"{guard.path} has size {problem}" for problem in problems if problem), "")

    def _of_size(self, axis: int, size: int, expected: int | str, sizes: dict[str, int]) -> str:
        if isinstance(expected, int):
            return "" if size == expected else f"{size} in axis {axis}, not {expected}"
        low, high = self._ranges[expected]
        if not low <= size <= high:
            return f"{size} in axis {axis}, which is not in {low}..{high}"
        known = sizes.setdefault(expected, size)
        return "" if known == size else f"{size} in axis {axis}, and another argument has {known}"
