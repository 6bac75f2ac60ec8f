"""A temporary directory that only this user may enter, and that goes with the object that holds it. No torch."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path


class PrivateDirectory:
    """Removed when nothing holds it any more, or at exit; not by a forked child, which holds a copy."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="autocompile-"))
        weakref.finalize(self, _remove, self.path, os.getpid())

    def put(self, contents: Mapping[str, bytes]) -> None:
        """Write files, by their paths within it."""
        for path, data in contents.items():
            target = self.path / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)


def _remove(path: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)
