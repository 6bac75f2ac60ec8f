"""Floor 1: which compilers are at hand, and what they need."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path


def cpp_compiler() -> str:
    """Name and version of the C++ compiler that Inductor would find on `PATH`, or ""."""
    for name in filter(None, (os.environ.get("CXX"), "g++", "clang++", "cl")):
        path = shutil.which(name)
        if path:
            return _first_line([path, "--version"]) or name
    return ""


def c_compiler() -> str:
    """The C compiler that Triton would use, by what it is called, or "": `CC`, else gcc or clang on `PATH`."""
    named = os.environ.get("CC")
    candidates = named.split()[:1] if named else ["gcc", "clang"]
    return next((name for name in candidates if shutil.which(name)), "")


def python_headers() -> Path | None:
    """The directory that holds `Python.h`, where Triton looks for it; None if it is not there."""
    scheme = sysconfig.get_default_scheme()
    directory = Path(sysconfig.get_paths("posix_prefix" if scheme == "posix_local" else scheme)["include"])
    return directory if (directory / "Python.h").exists() else None


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = done.stdout.splitlines()
    return lines[0].strip() if lines else ""
