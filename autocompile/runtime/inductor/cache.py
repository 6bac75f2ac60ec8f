"""The compiler's cache, carried from where it was packed to where the compiler looks for it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

CARRIED = "cache"
_TRITON = "triton"


# What the compiler keeps for programs. The rest is the toolchain's: headers, large and of that machine.
_SUFFIXES = frozenset({".gch", ".pch", ".lock", ".part"})


def belongs(within: Path) -> bool:
    """Whether a file of the compiler's cache, by its path within it, is worth carrying."""
    return within.suffix not in _SUFFIXES and "locks" not in within.parts


def install(contents: Mapping[str, bytes]) -> None:
    """Copy what is not there yet into this process's compiler cache; its entries are named by their contents."""
    from torch._inductor.runtime import cache_dir_utils as compiler  # noqa: PLC0415  this tier compiles anyway

    cache = Path(compiler.cache_dir())
    triton = Path(os.environ.get("TRITON_CACHE_DIR") or compiler.triton_cache_dir(0))
    for path, data in contents.items():
        parts = PurePosixPath(path).parts
        if CARRIED not in parts:
            continue
        within = parts[parts.index(CARRIED) + 1 :]
        target = triton.joinpath(*within[1:]) if within[0] == _TRITON else cache.joinpath(*within)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            number, beside = tempfile.mkstemp(dir=target.parent, suffix=".part")
            with os.fdopen(number, "wb") as stream:
                stream.write(data)
            Path(beside).chmod(0o755 if target.suffix == ".so" else 0o644)
            os.replace(beside, target)
