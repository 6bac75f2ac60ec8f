"""A package that torch wrote, as the files in it that a program is loaded from."""

from __future__ import annotations

import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

from autocompile.runtime.aot.runner import runner_of
from autocompile.runtime.base import NotLoadable


@dataclass(frozen=True)
class Unpacked:
    """What torch's loader is given: `name`, a directory or a file beside others, and which `files` that is."""

    name: str
    files: tuple[str, ...]


def unpacked(package: Path) -> Unpacked:
    """Put what is loaded of a package in a directory in its place; torch before 2.13 loads none, and it stays whole."""
    directory = package.with_suffix("")
    shutil.rmtree(directory, ignore_errors=True)  # of an attempt before
    with zipfile.ZipFile(package) as archive:
        # The rest is source code, and what tells about the package itself.
        loaded = [name for name in archive.namelist() if "/data/" in name and not name.endswith(".cpp")]
        archive.extractall(directory, loaded)
    try:
        runner_of(directory)
    except NotLoadable:
        shutil.rmtree(directory)
        return Unpacked(package.name, (package.name,))
    package.unlink()
    return Unpacked(directory.name, tuple(sorted(f"{directory.name}/{name}" for name in loaded)))
