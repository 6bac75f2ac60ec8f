"""Which files belong to a kernel, as Triton's cache has it, where that cache is carried to another path.

For each kernel Triton keeps a file `__grp__*.json` with the absolute paths of the others (3.6, `FileCacheManager`), and
compiles again where they are not there. Torch would write a kernel's files itself where it finds the program in its own
cache, but leaves a directory alone that holds some (2.13, `TritonBundler.read_and_emit`). So in what is carried the
paths are names alone, and they are completed where it is put down.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

_PREFIX, _SUFFIX, _PATHS = "__grp__", ".json", "child_paths"


def is_group(name: str) -> bool:
    """Whether a file of this name tells which files belong to a kernel."""
    return name.startswith(_PREFIX) and name.endswith(_SUFFIX)


def carried(data: bytes) -> bytes:
    """The same with names in place of paths; as it is, if it is of another form."""
    return _changed(data, lambda path: PurePath(path).name)


def put_down(data: bytes, directory: PurePath) -> bytes:
    """The same with the paths of the names in `directory`; as it is, if it is of another form."""
    return _changed(data, lambda path: str(directory / PurePath(path).name))


def _changed(data: bytes, change: Callable[[str], str]) -> bytes:
    try:
        group: Any = json.loads(data)
        paths = {name: change(path) for name, path in group[_PATHS].items()}
    except (AttributeError, LookupError, TypeError, ValueError):
        return data
    return json.dumps({**group, _PATHS: paths}).encode()
