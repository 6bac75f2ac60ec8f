"""Describe in which arguments a call differs from the calls that a program was compiled for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch.utils import _pytree as pytree


def differing_arguments(
    taken: Sequence[str], positional: int, keywords: Sequence[str], args: Sequence[Any], kwargs: dict[str, Any]
) -> str:
    """Describe which arguments the call has too many or too few, or return "" if there are none.

    `taken` are the names of the parameters that the model takes by position. The program takes the first `positional`
    of them, and `keywords`.
    """
    if max(positional, len(args)) > len(taken):
        if positional != len(args):
            return f"it was compiled for calls with {_counted(positional)}, not {len(args)}"
        expected, given = set(keywords), set(kwargs)
    else:
        expected, given = {*taken[:positional], *keywords}, {*taken[: len(args)], *kwargs}
    parts = (("with", expected - given), ("without", given - expected))
    said = [f"{word} {_named(names)}" for word, names in parts if names]
    return f"it was compiled for calls {' and '.join(said)}" if said else ""


def nested_otherwise(
    spec: pytree.TreeSpec, keywords: Sequence[str], args: Sequence[Any], kwargs: dict[str, Any]
) -> str:
    """Name the first argument whose nested structure differs from `spec`."""
    by_position, by_name = (part.children() for part in spec.children())
    expected = {**{f"[{n}]": one for n, one in enumerate(by_position)}, **dict(zip(keywords, by_name, strict=True))}
    given = {**{f"[{n}]": one for n, one in enumerate(args)}, **kwargs}
    for name, one in expected.items():
        if name in given and pytree.tree_structure(given[name]) != one:
            return f"it was compiled for an argument {name} that is nested differently"
    return "it was compiled for arguments that are nested differently"


def _counted(positional: int) -> str:
    return f"{positional} positional argument{'s' * (positional != 1)}"


def _named(names: Iterable[str]) -> str:
    return " and ".join(f"`{name}`" for name in sorted(names))
