"""Unpack the files of a package written by torch from which a program is loaded."""

from __future__ import annotations

import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

from autocompile.runtime.aot.runner import runner_of
from autocompile.runtime.base import NotLoadable, NotPackable

_CHUNK_BYTES = 1 << 20
_OWN_COPY = (
    "the C++ compiler puts its own copy of libstdc++ into the program, and calls then crash in a process with torch; "
    "set CXX to a compiler that links libstdc++.so"
)


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
        if name.endswith(".so"):
            check_linked(directory / name)
    try:
        runner_of(directory)
    except NotLoadable:
        shutil.rmtree(directory)
        return Unpacked(package.name, (package.name,))
    package.unlink()
    return Unpacked(directory.name, tuple(sorted(f"{directory.name}/{name}" for name in loaded)))


def check_linked(library: Path) -> None:
    """Raise NotPackable if a library written in C++ has its own copy of libstdc++, as with `-static-libstdc++`.

    Two copies in one process do not work together: `std::regex`, with which a program reads its device's name, crashed
    (torch 2.11, g++ 13.3).
    """
    if not _contains(library, b"libstdc++.so"):
        raise NotPackable(_OWN_COPY, "model")


def _contains(path: Path, words: bytes) -> bool:
    end = b""
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            if words in end + chunk:
                return True
            end = chunk[-len(words) :]
    return False
