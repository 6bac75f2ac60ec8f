"""Find the missing packages, and the wheels of a folder that provide them. Imports only pip, not torch.

The wheels are installed into a separate directory, without their dependencies, so that installed packages, above all
torch, do not change. Therefore the folder must have all missing packages. It may also have installed ones.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name, parse_wheel_filename
from pip._vendor.packaging.version import Version

# In addition to the requirements of autocompile: the test runner, and the models of the studies.
_BESIDE = ("pytest", "pytest-timeout", "transformers>=5,<6")


def requirements(pyproject: Path) -> list[Requirement]:
    """Return the requirements of autocompile, its GPU tests and the studies."""
    own = tomllib.loads(pyproject.read_text())["project"]["dependencies"]
    return [Requirement(text) for text in (*own, *_BESIDE)]


def installed() -> dict[str, str]:
    """Return the version of each installed distribution by its normalized name."""
    found: dict[str, str] = {}
    for one in metadata.distributions():
        if one.metadata["Name"]:  # the first on the path is the one that is imported
            found.setdefault(canonicalize_name(one.metadata["Name"]), one.version)
    return found


def unmet(needed: Iterable[Requirement], here: Mapping[str, str]) -> list[Requirement]:
    """Return the requirements that are not met; of a version such as 2.11.0+cu130, only 2.11.0 counts."""
    return [one for one in needed if not _holds(one, here.get(canonicalize_name(one.name)))]


def _holds(one: Requirement, version: str | None) -> bool:
    return version is not None and one.specifier.contains(Version(version).public, prereleases=True)


def chosen(wheels: Iterable[Path], needed: Iterable[Requirement], here: Mapping[str, str]) -> list[Path]:
    """Return the wheels of missing packages and of unmet requirements; torch is never replaced."""
    wanted = {canonicalize_name(one.name) for one in unmet(needed, here)}
    found = []
    for wheel in sorted(wheels):
        name = parse_wheel_filename(wheel.name)[0]
        if name != "torch" and (name in wanted or name not in here):
            found.append(wheel)
    return found


def complaint(missing: Iterable[Requirement], folder: Path | None) -> str:
    """Return a message about missing packages and what to do, or "" if none is missing."""
    names = ", ".join(re.sub(r"\s", "", str(one)) for one in missing)
    if not names:
        return ""
    if folder is None:
        return f"missing packages: {names}; pass a folder with their wheels: make gpu WHEELS=folder"
    return f"missing packages, not in {folder}: {names}; put their wheels and their dependencies there"
