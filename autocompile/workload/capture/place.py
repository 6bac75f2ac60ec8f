"""Locate a script that is given as a path or as a module's name. No torch, and nothing is imported."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from autocompile.core.errors import InvalidWorkload


@dataclass(frozen=True)
class ScriptPlace:
    """A script's `path`, and the `name` of the module that it is run as, or ""."""

    path: Path
    name: str = ""

    @property
    def package(self) -> str:
        """The package that its relative imports refer to."""
        return self.name if self.path.stem == "__main__" else self.name.rpartition(".")[0]


def script_place(given: str, *, as_module: bool = False) -> ScriptPlace:
    """Return the script at this path, or the module of this name, found as `python -m` finds it.

    Raises InvalidWorkload if there is none.
    """
    if as_module:
        return ScriptPlace(_file_of(given), given)
    path = Path(given)
    if not path.is_file():
        fault = "is a directory" if path.is_dir() else "no such script"
        raise InvalidWorkload(fault, where=given, remedy="give the path of a Python file, or -m and a module's name")
    return ScriptPlace(path)


def _file_of(name: str) -> Path:
    places: list[str] | None = [str(Path.cwd()), *sys.path]
    spec: ModuleSpec | None = None
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:count]), places) if places is not None else None
        places = None if spec is None or spec.submodule_search_locations is None else [*spec.submodule_search_locations]
    if spec is not None and places is not None:
        spec = PathFinder.find_spec(f"{name}.__main__", places)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        said = "no such module was found"
        raise InvalidWorkload(said, where=name, remedy="give its name as `python -m` takes it, or the path of a script")
    return Path(spec.origin)
