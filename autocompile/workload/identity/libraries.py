"""Tell code of torch, Python and installed packages from the user's own."""

from __future__ import annotations

import inspect
import sys
import sysconfig
import types

from autocompile.workload.places import is_installed

_STDLIB = sysconfig.get_path("stdlib")


def is_torchs(module: str) -> bool:
    """Return whether a module of this name belongs to torch or is Python's builtins."""
    return package_of(module) in {"torch", "builtins"}


def package_of(module: str) -> str:
    """Return the name of the package of a module of this name."""
    return module.partition(".")[0]


def is_library(thing: type | types.FunctionType | types.ModuleType) -> bool:
    """Return whether it belongs to torch, Python or an installed package."""
    if isinstance(thing, types.ModuleType):
        return is_from_library(thing.__name__, vars(thing).get("__file__"))
    if isinstance(thing, types.FunctionType):
        return is_from_library(thing.__module__ or "", thing.__code__.co_filename)
    if thing.__module__ == "__main__":  # `__main__` may be a library's program that runs the user's code
        return False
    functions = (inspect.unwrap(one) for one in vars(thing).values() if isinstance(one, types.FunctionType))
    written = (one.__code__.co_filename for one in functions if isinstance(one, types.FunctionType))
    file = next((name for name in written if not name.startswith("<")), None)
    return is_from_library(thing.__module__, file or getattr(sys.modules.get(thing.__module__), "__file__", None))


def is_from_library(module: str, file: str | None) -> bool:
    """Return whether a module of this name, with its code in this file, belongs to torch, Python or a package."""
    return is_torchs(module) or (file is not None and (file.startswith(_STDLIB) or is_installed(file)))
