"""Unpack the files of a package written by torch from which a program is loaded."""

from __future__ import annotations

import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

from autocompile.runtime.aot.linking import linking_problem
from autocompile.runtime.aot.runner import runner_of
from autocompile.runtime.base import NotLoadable, NotPackable


@dataclass(frozen=True)
class Unpacked:
    """The input of torch's loader: `name`, a directory or a file, and the names of its `files`."""

    name: str
    files: tuple[str, ...]


def unpacked(package: Path) -> Unpacked:
    """Replace a package by a directory with the files to load.

    Torch before 2.13 cannot load a directory; the package stays. Raises NotPackable if the code cannot be used in other
    processes.
    """
    directory = package.with_suffix("")
    shutil.rmtree(directory, ignore_errors=True)  # from an earlier attempt
    with zipfile.ZipFile(package) as archive:
        # The other files are source code and the package's metadata.
        loaded = [name for name in archive.namelist() if "/data/" in name and not name.endswith(".cpp")]
        archive.extractall(directory, loaded)
    for name in loaded:
        problem = linking_problem(directory / name) if name.endswith(".so") else ""
        if problem:
            raise NotPackable(problem, "model")
    try:
        runner_of(directory)
    except NotLoadable:
        shutil.rmtree(directory)
        return Unpacked(package.name, (package.name,))
    package.unlink()
    return Unpacked(directory.name, tuple(sorted(f"{directory.name}/{name}" for name in loaded)))
