"""A kind of file that a runtime's own library runs without this one. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata


@dataclass(frozen=True)
class Format:
    """`name`, as `--to` has it; `meaning`, in words; `file`, what is loaded.

    `implementation`: the module whose `WRITER`, a `runtime.writer.Writer`, writes it. `needs`: the distributions that
    writing and running it need beside torch, each with the others that bring the same.
    """

    name: str
    meaning: str
    file: str
    implementation: str
    needs: tuple[tuple[str, ...], ...] = ()

    def missing(self) -> str:
        """The first distribution that is not installed here, or ""."""
        return next((alike[0] for alike in self.needs if not any(map(_version, alike))), "")

    def versions(self) -> dict[str, str]:
        """Of those that are installed, by name."""
        found = {name: _version(name) for alike in self.needs for name in alike}
        return {name: version for name, version in found.items() if version}


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""
