"""Keep Triton's lists of the files of a kernel valid when its cache is carried to another path.

For each kernel, Triton keeps a file `__grp__*.json` with the absolute paths of the other files (3.6,
`FileCacheManager`), and compiles again if they are not there. Torch would write a kernel's files itself if it finds the
program in its own cache, but it does not touch a directory that already has some (2.13, `TritonBundler.read_and_emit`).
Therefore carried files contain only names, and are completed with paths when they are installed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

_PREFIX, _SUFFIX, _PATHS = "__grp__", ".json", "child_paths"


def is_group(name: str) -> bool:
    """Return whether a file with this name lists the files of a kernel."""
    return name.startswith(_PREFIX) and name.endswith(_SUFFIX)


def carried(data: bytes) -> bytes:
    """Replace the paths by names. Data of another form is returned unchanged."""
    return _changed(data, lambda path: PurePath(path).name)


def put_down(data: bytes, directory: PurePath) -> bytes:
    """Replace the names by their paths in `directory`. Data of another form is returned unchanged."""
    return _changed(data, lambda path: str(directory / PurePath(path).name))


def _changed(data: bytes, change: Callable[[str], str]) -> bytes:
    try:
        group: Any = json.loads(data)
        paths = {name: change(path) for name, path in group[_PATHS].items()}
    except (AttributeError, LookupError, TypeError, ValueError):
        return data
    return json.dumps({**group, _PATHS: paths}).encode()
