"""The compiler's cache: where it is, and how it is carried to where another process's compiler looks."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from autocompile.runtime.inductor.triton_groups import carried, is_group, put_down

_TRITON = "triton"


# What the compiler keeps for programs. The rest is the toolchain's: headers, large and of that machine.
_SUFFIXES = frozenset({".gch", ".pch", ".lock", ".part"})


def variables(directory: str) -> dict[str, str]:
    """Environment variables by which the compiler keeps its cache there."""
    return {"TORCHINDUCTOR_CACHE_DIR": directory, "TRITON_CACHE_DIR": str(Path(directory) / _TRITON)}


def keep_headers_in(directory: Path) -> None:
    """Have the compiler look for its precompiled headers there, and leave them there.

    By itself it has them in the system's temporary directory, where a run's own goes when the run ends.
    """
    codecache = sys.modules["torch._inductor.codecache"]
    if hasattr(codecache, "_HEADER_DIR"):
        vars(codecache).update(_HEADER_DIR=str(directory), _HEADER_LOCK_DIR=str(directory / "locks"))


def keep(directory: Path) -> None:
    """Copy what is worth carrying of this process's cache."""
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
    """Whether a file of the compiler's cache, by its path within it, is worth carrying."""
    return within.suffix not in _SUFFIXES and "locks" not in within.parts


def install(files: Mapping[str, bytes]) -> None:
    """Copy what is not there yet into this process's compiler cache; its entries are named by their contents."""
    from torch._inductor.runtime import cache_dir_utils as compiler  # noqa: PLC0415  who installs it compiles anyway

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
