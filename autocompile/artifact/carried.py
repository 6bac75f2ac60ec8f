"""The compiler's cache, carried from where it was packed to where the compiler looks for it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from autocompile.core.manifest import FileEntry

CARRIED = "cache"
_TRITON = "triton"


# What the compiler keeps for programs. The rest is the toolchain's: headers, large and of that machine.
_SUFFIXES = frozenset({".gch", ".pch", ".lock", ".part"})


def belongs(within: Path) -> bool:
    """Whether a file of the compiler's cache, by its path within it, is worth carrying."""
    return within.suffix not in _SUFFIXES and "locks" not in within.parts


def install(directory: Path, files: Sequence[FileEntry]) -> None:
    """Copy what is not there yet into this process's compiler cache; its entries are named by their contents."""
    from torch._inductor.runtime import cache_dir_utils as compiler  # noqa: PLC0415  this tier compiles anyway

    cache = Path(compiler.cache_dir())
    triton = Path(os.environ.get("TRITON_CACHE_DIR") or compiler.triton_cache_dir(0))
    for entry in files:
        parts = PurePosixPath(entry.path).parts
        if CARRIED not in parts:
            continue
        within = parts[parts.index(CARRIED) + 1 :]
        target = triton.joinpath(*within[1:]) if within[0] == _TRITON else cache.joinpath(*within)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            beside = target.with_name(f".{target.name}.{os.getpid()}.part")
            shutil.copyfile(directory / entry.path, beside)
            if target.suffix == ".so":
                beside.chmod(0o755)
            os.replace(beside, target)
