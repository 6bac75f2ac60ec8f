"""The nested structure of arguments and outputs, read without torch, with names for classes that are missing here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

_SEQUENCES: dict[str, Callable[[list[Any]], Any]] = {"builtins.tuple": tuple, "builtins.list": list}
_MAPPINGS = ("builtins.dict", "collections.OrderedDict")


@dataclass(frozen=True)
class Structure:
    """A nested value. `type` is the name of its class, "" for a leaf. `names` are the names of its children, if any."""

    type: str
    names: tuple[str, ...]
    children: tuple[Structure, ...]

    def filled(self, leaves: Iterator[Any]) -> Any:
        """Build the value from its leaves, taken in order.

        A record of another class becomes a dict with the same names.
        """
        if not self.type:
            return next(leaves)
        values = [child.filled(leaves) for child in self.children]
        if self.type in _SEQUENCES:
            return _SEQUENCES[self.type](values)
        return dict(zip(self.names, values, strict=True)) if self.names or not values else tuple(values)

    def leaves_of(self, value: Any) -> list[Any] | None:
        """Return the leaves of a value with this structure, or None if its structure is different."""
        if not self.type:
            return [value]
        children = self._children_of(value)
        if children is None:
            return None
        taken = [child.leaves_of(one) for child, one in zip(self.children, children, strict=True)]
        return None if any(leaves is None for leaves in taken) else [leaf for leaves in taken for leaf in leaves or ()]

    def _children_of(self, value: Any) -> Sequence[Any] | None:
        if self.type in _SEQUENCES:
            return value if isinstance(value, tuple | list) and len(value) == len(self.children) else None
        if isinstance(value, Mapping) and value.keys() == set(self.names):
            return [value[name] for name in self.names]
        return None

    def classes(self) -> Iterator[str]:
        """Yield the class names of the records in it, which are not Python's own containers."""
        if self.type and self.type not in _SEQUENCES and self.type not in _MAPPINGS:
            yield self.type
        for child in self.children:
            yield from child.classes()


def structure_of(text: str) -> Structure:
    """Return the structure that torch has written as `text` (`torch.utils._pytree.treespec_dumps`).

    Raises ValueError if the text has another form.
    """
    try:
        _version, node = json.loads(text)
        return _structure(node)
    except (KeyError, TypeError) as fault:
        raise ValueError(f"it does not describe a nested structure: {fault}") from fault


def _structure(node: Mapping[str, Any]) -> Structure:
    children = tuple(_structure(child) for child in node["children_spec"])
    return Structure(node["type"] or "", _names(node["context"], len(children)), children)


def _names(written: Any, count: int) -> tuple[str, ...]:
    """Return the names in a class's own description, which is a list, or a list or dict that contains one; else ()."""
    try:
        context = json.loads(written) if isinstance(written, str) else written
    except ValueError:
        return ()
    held = list(context.values()) if isinstance(context, dict) else context if isinstance(context, list) else []
    for found in (context, *held):
        if isinstance(found, list) and len(found) == count and all(isinstance(name, str) for name in found):
            return tuple(found)
    return ()


def missing_class(text: str) -> str:
    """Return the first record class in this structure that cannot be imported here, or ""."""
    return next((name for name in structure_of(text).classes() if not _is_there(name)), "")


def _is_there(name: str) -> bool:
    module, _dot, own = name.rpartition(".")
    try:
        return hasattr(import_module(module), own)
    except (ImportError, ValueError):  # ValueError if the name has no module
        return False
