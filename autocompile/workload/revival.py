"""Functions that travelled by value, at home in a module again.

Pickled by value, a function keeps the name of the module that it was written in, and gets a namespace that is none's.
The compiler looks up by the name what an inlined function takes from its module, and finds none of the script's helpers
and constants. So here the namespace is that of a module which can be imported under the name.
"""

from __future__ import annotations

import pickle
import sys
from types import CodeType, FunctionType, ModuleType
from typing import Any

from cloudpickle import cloudpickle

# As it reads in the pickles.
_MAKER = ("cloudpickle.cloudpickle", "_make_function")
_revived: dict[str, ModuleType] = {}


class Unpickler(pickle.Unpickler):
    """As Python's own, but that what was written in a script has a module again. For a process of the script's own."""

    def find_class(self, module: str, name: str) -> Any:
        """What `name` stands for."""
        return _make_function if (module, name) == _MAKER else super().find_class(module, name)


def _make_function(code: CodeType, namespace: dict[str, Any], *others: Any) -> FunctionType:
    """In the place of cloudpickle's, which does the same with the bare namespace."""
    home = _home_of(namespace)
    if home is not None:
        vars(home).update(namespace)
        namespace = vars(home)
    function: FunctionType = cloudpickle._make_function(code, namespace, *others)  # noqa: SLF001  that the pickles name
    return function


def _home_of(namespace: dict[str, Any]) -> ModuleType | None:
    """The module of the namespace's name; None if it has no name, or there is one that was imported."""
    name = namespace.get("__name__")
    if not isinstance(name, str):
        return None
    if name == "__main__":
        # What this process runs is nobody's to import; with a file, its own children would run the user's script.
        namespace.pop("__file__", None)
    elif name in sys.modules and name not in _revived:
        return None
    if name not in _revived:
        _revived[name] = sys.modules[name] = ModuleType(name)
    return _revived[name]
