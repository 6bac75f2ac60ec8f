"""Floor 1: which compilers are installed, and what they need."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path


def cpp_compiler() -> str:
    """Return name and version of the C++ compiler that Inductor would find on `PATH`, or ""."""
    for name in filter(None, (os.environ.get("CXX"), "g++", "clang++", "cl")):
        path = shutil.which(name)
        if path:
            return _first_line([path, "--version"]) or name
    return ""


def c_compiler() -> str:
    """Return the command of the C compiler that Triton would use (`CC`, else gcc or clang on `PATH`), or ""."""
    named = os.environ.get("CC")
    candidates = named.split()[:1] if named else ["gcc", "clang"]
    return next((name for name in candidates if shutil.which(name)), "")


def python_headers() -> Path | None:
    """Return the directory where Triton looks for `Python.h`; None if the file is not there."""
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
