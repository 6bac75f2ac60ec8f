"""What is missing here, and which wheels of a folder bring it. No torch, and nothing beyond pip's own packages.

Wheels are put into a directory of their own, without looking for what they need: what is installed stays as it is,
torch above all. So all that is missing has to lie in the folder, and what is there already may.
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

# Beside what the package itself needs: what runs its tests, and what the studies' workloads are made of.
_BESIDE = ("pytest", "pytest-timeout", "transformers>=5,<6")


def requirements(pyproject: Path) -> list[Requirement]:
    """What the package, its tests on a GPU and the studies need."""
    own = tomllib.loads(pyproject.read_text())["project"]["dependencies"]
    return [Requirement(text) for text in (*own, *_BESIDE)]


def installed() -> dict[str, str]:
    """The version of each distribution that can be imported here, by its normalized name."""
    found: dict[str, str] = {}
    for one in metadata.distributions():
        if one.metadata["Name"]:  # the first on the path is the one that is imported
            found.setdefault(canonicalize_name(one.metadata["Name"]), one.version)
    return found


def unmet(needed: Iterable[Requirement], here: Mapping[str, str]) -> list[Requirement]:
    """Those that are not here, or in another version; of a build for CUDA, 2.11.0+cu130, the 2.11.0 counts."""
    return [one for one in needed if not _holds(one, here.get(canonicalize_name(one.name)))]


def _holds(one: Requirement, version: str | None) -> bool:
    return version is not None and one.specifier.contains(Version(version).public, prereleases=True)


def chosen(wheels: Iterable[Path], needed: Iterable[Requirement], here: Mapping[str, str]) -> list[Path]:
    """Of these wheels those that bring what is not here, or what is unmet; torch is never replaced."""
    wanted = {canonicalize_name(one.name) for one in unmet(needed, here)}
    found = []
    for wheel in sorted(wheels):
        name = parse_wheel_filename(wheel.name)[0]
        if name != "torch" and (name in wanted or name not in here):
            found.append(wheel)
    return found


def complaint(missing: Iterable[Requirement], folder: Path | None) -> str:
    """What to do about what is still missing, or ""."""
    names = ", ".join(re.sub(r"\s", "", str(one)) for one in missing)
    if not names:
        return ""
    if folder is None:
        return f"missing here: {names}; give the folder that has them: make gpu WHEELS=folder"
    return f"missing here, and not in {folder}: {names}; put their wheels there, with what they need"
