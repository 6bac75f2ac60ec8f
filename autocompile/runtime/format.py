"""A file format that a runtime's own library runs without autocompile. Does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata


@dataclass(frozen=True)
class Format:
    """A file format: `name` as `--to` takes it, `meaning` as text, and `file`, the name of the file to load.

    `implementation` is the module whose `WRITER`, a `runtime.writer.Writer`, writes the format. `needs` lists the
    distributions that are needed in addition to torch, each as a tuple of alternatives that provide the same library.
    """

    name: str
    meaning: str
    file: str
    implementation: str
    needs: tuple[tuple[str, ...], ...] = ()

    def missing(self) -> str:
        """Return the first distribution that is not installed, or ""."""
        return next((alike[0] for alike in self.needs if not any(map(_version, alike))), "")

    def versions(self) -> dict[str, str]:
        """Return the versions of the distributions that are installed, by name."""
        found = {name: _version(name) for alike in self.needs for name in alike}
        return {name: version for name, version in found.items() if version}


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""
