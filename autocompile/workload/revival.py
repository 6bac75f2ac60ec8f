"""Functions that travelled by value, at home in a module again.

Pickled by value, a function keeps the name of the module that it was written in, and gets a namespace that is none's.
The compiler looks up by the name what an inlined function takes from its module, and finds none of the script's helpers
and constants. So here the namespace is that of a module which can be imported under the name.
"""

from __future__ import annotations

import importlib.util
import pickle
import sys
from types import CodeType, FunctionType, ModuleType
from typing import Any

from cloudpickle import cloudpickle

# As it reads in the pickles.
_MAKER = ("cloudpickle.cloudpickle", "_make_function")
_revived: set[str] = set()


class Unpickler(pickle.Unpickler):
    """As Python's own, but that what was written in a script has a module again. For a process of the script's own."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._homes: dict[str, tuple[dict[str, Any], ModuleType | None]] = {}

    def find_class(self, module: str, name: str) -> Any:
        """What `name` stands for."""
        return self._make_function if (module, name) == _MAKER else super().find_class(module, name)

    def _make_function(self, code: CodeType, namespace: dict[str, Any], *others: Any) -> FunctionType:
        """In the place of cloudpickle's, which does the same with the bare namespace."""
        home = self._home_of(namespace)
        if home is not None:
            vars(home).update(namespace)
            namespace = vars(home)
        function: FunctionType = cloudpickle._make_function(code, namespace, *others)  # noqa: SLF001  what pickles name
        return function

    def _home_of(self, namespace: dict[str, Any]) -> ModuleType | None:
        """The namespace's module; None if it has no name, there is a real one, or the name is another's already."""
        name = namespace.get("__name__")
        if not isinstance(name, str):
            return None
        if name not in self._homes:
            self._homes[name] = namespace, None if _is_real(name) else _revive(name)
        owner, home = self._homes[name]
        return home if owner is namespace else None


def _is_real(name: str) -> bool:
    """Whether there is a module to import; what this process itself runs is nobody's."""
    if name == "__main__" or name in _revived:
        return False
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _revive(name: str) -> ModuleType:
    _revived.add(name)
    sys.modules[name] = ModuleType(name)
    return sys.modules[name]
