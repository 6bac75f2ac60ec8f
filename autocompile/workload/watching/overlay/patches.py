"""Replace functions for a while, in all modules that hold them, and restore them."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_ABSENT = object()
_OURS = __name__.rpartition(".")[0]


class Patches:
    """Records what was replaced, so that it can be restored."""

    def __init__(self) -> None:
        self._undone: list[Callable[[], Any]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        before = vars(owner).get(name, _ABSENT)
        setattr(owner, name, value)
        self._undone.append(
            (lambda: delattr(owner, name)) if before is _ABSENT else (lambda: setattr(owner, name, before))
        )

    def replace(self, functions: Mapping[Any, Any], owners: Iterable[Any]) -> None:
        """Replace functions in all modules (or classes) that hold them, under any name."""
        others = {id(function): (function, door) for function, door in functions.items()}
        for owner in owners:
            held = getattr(owner, "__dict__", None)
            if held is None or str(held.get("__name__")).startswith(_OURS):
                continue
            for name, value in list(held.items()):
                inner = value.__func__ if type(value) is staticmethod else value
                if id(inner) in others:
                    door = others[id(inner)][1]
                    self.put(owner, name, door if inner is value else staticmethod(door))

    def replace_items(self, functions: Mapping[Any, Any], held: dict[Any, Any]) -> None:
        """Replace functions that are values of a dictionary."""
        for key, value in list(held.items()):
            if value in functions:
                held[key] = functions[value]
                self._undone.append(functools.partial(held.__setitem__, key, value))

    def first(self, known: list[Any], member: Any) -> None:
        """Insert something before the other members of a list."""
        known.insert(0, member)
        self._undone.append(functools.partial(known.remove, member))

    def announce(self, functions: Mapping[Any, Any]) -> None:
        """Register the replacements where `os` lists what takes descriptors or does not follow links."""
        for known in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
            added = {door for function, door in functions.items() if function in known}
            known.update(added)
            self._undone.append(functools.partial(known.difference_update, added))

    def undo(self) -> None:
        while self._undone:
            self._undone.pop()()
