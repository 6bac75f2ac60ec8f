"""The machine and the versions that a measurement belongs to."""

from __future__ import annotations

import hashlib

from autocompile.core.serde import Record, to_json
from autocompile.core.units import format_bytes


class Gpu(Record, frozen=True):
    """One NVIDIA GPU as NVML tells it; null where it does not tell the memory, as for the parent of MIG slices."""

    name: str
    uuid: str
    memory_bytes: int | None

    def __str__(self) -> str:
        return f"{self.name} ({'memory not told' if self.memory_bytes is None else format_bytes(self.memory_bytes)})"


class Environment(Record, frozen=True):
    """The machine and the versions that a measurement belongs to.

    `cores` are those this process may use: affinity and cgroup quota, not what the machine has.
    `cpu_features` are the vector extensions that decide what a compiler emits.
    """

    cpu: str
    architecture: str
    cpu_features: tuple[str, ...]
    cores: int
    memory_bytes: int
    gpus: tuple[Gpu, ...]
    driver: str
    system: str
    python: str
    torch: str
    autocompile: str
    compiler: str

    @property
    def fingerprint(self) -> str:
        """Equal on machines of one kind with equal versions: a study belongs to one."""
        gpus = [gpu.name for gpu in self.gpus]
        versions = [self.driver, self.python, self.torch, self.autocompile, self.compiler]
        kind = [self.cpu, self.architecture, *self.cpu_features, self.cores, *gpus, *versions]
        return hashlib.sha256(to_json(kind)).hexdigest()[:16]
