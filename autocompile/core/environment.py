"""The machine and the versions that a measurement belongs to."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from autocompile.core.serde import Record, to_json
from autocompile.core.units import format_bytes

_TF32_FROM = 8


class Gpu(Record, frozen=True):
    """One NVIDIA GPU as NVML tells it; null where it does not tell the memory, as for the parent of MIG slices."""

    name: str
    uuid: str
    memory_bytes: int | None

    def __str__(self) -> str:
        return f"{self.name} ({'memory not told' if self.memory_bytes is None else format_bytes(self.memory_bytes)})"


class GpuKind(Record, frozen=True):
    """What a compiler goes by of a GPU that is used, as CUDA tells it; "" and 0 where none is.

    The `name` of a MIG slice ends with its profile, as `NVIDIA A100-SXM4-40GB MIG 1g.5gb`. `capability`: its compute
    capability, as `9.0`.
    """

    name: str = ""
    capability: str = ""
    multiprocessors: int = 0

    @property
    def has_tf32(self) -> bool:
        """Whether it multiplies in TF32, which begins with compute capability 8.0."""
        return int(self.capability.partition(".")[0] or 0) >= _TF32_FROM


class Environment(Record, frozen=True):
    """The machine and the versions that a measurement belongs to.

    `cores` are those this process may use: affinity and cgroup quota, not what the machine has.
    `cpu_features` are the vector extensions that decide what a compiler emits. `gpus`: all that NVML tells of, used or
    not.
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
        """Equal on machines of one kind with equal versions, whatever GPUs they have."""
        return self.fingerprint_with(())

    def fingerprint_with(self, gpus: Sequence[GpuKind]) -> str:
        """The same, where these GPUs are used: a study belongs to one. Others beside them make no difference."""
        versions = [self.python, self.torch, self.autocompile, self.compiler, *([self.driver] if gpus else [])]
        used = [[gpu.name, gpu.capability, gpu.multiprocessors] for gpu in gpus]
        kind = [self.cpu, self.architecture, *self.cpu_features, self.cores, *versions, *used]
        return hashlib.sha256(to_json(kind)).hexdigest()[:16]
