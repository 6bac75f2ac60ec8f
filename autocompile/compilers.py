"""Floor 1: which C++ compiler is at hand."""

from __future__ import annotations

import os
import shutil
import subprocess


def cpp_compiler() -> str:
    """Name and version of the C++ compiler that Inductor would find on `PATH`, or ""."""
    for name in filter(None, (os.environ.get("CXX"), "g++", "clang++", "cl")):
        path = shutil.which(name)
        if path:
            return _first_line([path, "--version"]) or name
    return ""


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = done.stdout.splitlines()
    return lines[0].strip() if lines else ""
