"""Give functions that were pickled by value a module again.

A function that is pickled by value keeps the name of the module that it was written in, but its new namespace belongs
to no module. The compiler uses that name to look up what an inlined function takes from its module, and does not find
the script's helpers and constants. Therefore the namespace used here is that of a module that can be imported under the
name.
"""

from __future__ import annotations

import importlib.util
import pickle
import sys
from types import CodeType, FunctionType, ModuleType
from typing import Any

from cloudpickle import cloudpickle

# The function as pickles name it.
_MAKER = ("cloudpickle.cloudpickle", "_make_function")
_revived: set[str] = set()


class Unpickler(pickle.Unpickler):
    """Python's unpickler, except that functions written in a script get a module.

    It is for use in a process that serves one script only.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._homes: dict[str, tuple[dict[str, Any], ModuleType | None]] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Return the object that `name` stands for."""
        return self._make_function if (module, name) == _MAKER else super().find_class(module, name)

    def _make_function(self, code: CodeType, namespace: dict[str, Any], *others: Any) -> FunctionType:
        """Make a function as cloudpickle does, but with a module's namespace."""
        home = self._home_of(namespace)
        if home is not None:
            vars(home).update(namespace)
            namespace = vars(home)
        function: FunctionType = cloudpickle._make_function(code, namespace, *others)  # noqa: SLF001  what pickles name
        return function

    def _home_of(self, namespace: dict[str, Any]) -> ModuleType | None:
        """Return the namespace's module, or None.

        It is None if the namespace has no name, or if a real module or another namespace has that name.
        """
        name = namespace.get("__name__")
        if not isinstance(name, str):
            return None
        if name not in self._homes:
            self._homes[name] = namespace, None if _is_real(name) else _revive(name)
        owner, home = self._homes[name]
        return home if owner is namespace else None


def _is_real(name: str) -> bool:
    """Return whether a module of this name can be imported.

    `__main__`, which this process runs itself, does not count.
    """
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
