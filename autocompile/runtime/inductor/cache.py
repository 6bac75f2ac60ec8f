"""The compiler's cache: where it is, and how it is carried to the cache of another process."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from autocompile.runtime.inductor.triton_groups import carried, is_group, put_down

_TRITON = "triton"


# Files that do not belong to programs: precompiled headers, which are large and belong to the machine, and locks.
_SUFFIXES = frozenset({".gch", ".pch", ".lock", ".part"})


def variables(directory: str) -> dict[str, str]:
    """Return the environment variables that make the compiler keep its cache in `directory`."""
    return {"TORCHINDUCTOR_CACHE_DIR": directory, "TRITON_CACHE_DIR": str(Path(directory) / _TRITON)}


def keep_headers_in(directory: Path) -> None:
    """Make the compiler keep its precompiled headers in `directory`.

    By default they are in the system's temporary directory. A run uses its own temporary directory, which is deleted
    when the run ends.
    """
    codecache = sys.modules["torch._inductor.codecache"]
    if hasattr(codecache, "_HEADER_DIR"):
        vars(codecache).update(_HEADER_DIR=str(directory), _HEADER_LOCK_DIR=str(directory / "locks"))


def keep(directory: Path) -> None:
    """Copy the files of this process's cache that are worth carrying."""
    cache = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    for file in sorted(path for path in cache.rglob("*") if path.is_file()):
        within = file.relative_to(cache)
        if belongs(within):
            target = directory / within
            target.parent.mkdir(parents=True, exist_ok=True)
            if is_group(file.name):
                target.write_bytes(carried(file.read_bytes()))
            else:
                shutil.copyfile(file, target)


def belongs(within: Path) -> bool:
    """Return whether a file of the compiler's cache, given by its path in the cache, is worth carrying."""
    return within.suffix not in _SUFFIXES and "locks" not in within.parts


def install(files: Mapping[str, bytes]) -> None:
    """Copy missing files into this process's compiler cache, whose entries are named by their contents."""
    from torch._inductor.runtime import cache_dir_utils as compiler  # noqa: PLC0415  a process that installs a cache compiles anyway

    cache = Path(compiler.cache_dir())
    triton = Path(os.environ.get("TRITON_CACHE_DIR") or compiler.triton_cache_dir(0))
    for path, data in files.items():
        within = PurePosixPath(path).parts
        target = triton.joinpath(*within[1:]) if within[0] == _TRITON else cache.joinpath(*within)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            number, beside = tempfile.mkstemp(dir=target.parent, suffix=".part")
            with os.fdopen(number, "wb") as stream:
                stream.write(put_down(data, target.parent.absolute()) if is_group(target.name) else data)
            Path(beside).chmod(0o755 if target.suffix == ".so" else 0o644)
            os.replace(beside, target)
