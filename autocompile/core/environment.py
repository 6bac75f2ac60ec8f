"""The machine and the versions that a measurement belongs to."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from autocompile.core.serde import Record, to_json
from autocompile.core.units import format_bytes

_TF32_FROM = 8


class Gpu(Record, frozen=True):
    """One NVIDIA GPU, as reported by NVML. The memory is null if NVML does not report it, as for a GPU in MIG mode."""

    name: str
    uuid: str
    memory_bytes: int | None

    def __str__(self) -> str:
        return f"{self.name} ({'memory unknown' if self.memory_bytes is None else format_bytes(self.memory_bytes)})"


class GpuKind(Record, frozen=True):
    """The properties of a GPU that matter to a compiler, as reported by CUDA; "" and 0 if no GPU is used.

    The `name` of a MIG slice ends with its profile, such as `NVIDIA A100-SXM4-40GB MIG 1g.5gb`. `capability` is the
    compute capability, such as `9.0`.
    """

    name: str = ""
    capability: str = ""
    multiprocessors: int = 0

    @property
    def has_tf32(self) -> bool:
        """Whether the GPU supports TF32, that is, compute capability 8.0 or higher."""
        return int(self.capability.partition(".")[0] or 0) >= _TF32_FROM


class Environment(Record, frozen=True):
    """The machine and the versions that a measurement belongs to.

    `cores`: the number of cores that this process may use, by affinity and cgroup quota. `cpu_features`: the vector
    extensions that determine which code a compiler emits. `gpus`: all GPUs that NVML reports, used or not.
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
        """A digest that is equal on machines of one kind with equal versions, whatever GPUs they have."""
        return self.fingerprint_with(())

    def fingerprint_with(self, gpus: Sequence[GpuKind]) -> str:
        """Return the fingerprint for a study that uses these GPUs. Other GPUs of the machine make no difference."""
        versions = [self.python, self.torch, self.autocompile, self.compiler, *([self.driver] if gpus else [])]
        used = [[gpu.name, gpu.capability, gpu.multiprocessors] for gpu in gpus]
        kind = [self.cpu, self.architecture, *self.cpu_features, self.cores, *versions, *used]
        return hashlib.sha256(to_json(kind)).hexdigest()[:16]
