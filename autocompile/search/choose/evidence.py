"""What the profile and the machine show before anything is tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autocompile.core.bound import STARVED_GPU
from autocompile.core.environment import Environment
from autocompile.core.profile import Profile


@dataclass(frozen=True)
class Evidence:
    """The input of rules and priors; `eager_ms`: the time of a call in eager, in milliseconds by batch size."""

    profile: Profile
    environment: Environment
    device_type: str
    signature_count: int = 1
    eager_ms: Mapping[int, float] = field(default_factory=dict)

    @property
    def on_cpu(self) -> bool:
        """Whether the model runs on the CPU."""
        return self.device_type == "cpu"

    @property
    def gpu_starves(self) -> bool:
        """Whether a GPU is idle while it waits for kernel launches."""
        busy = self.profile.busy
        return self.device_type == "cuda" and busy is not None and busy < STARVED_GPU

    @property
    def starting_bounds_cpu(self) -> bool:
        """Whether starting operators takes most of a CPU's time."""
        return self.on_cpu and self.profile.bound == "overhead"

    @property
    def breaks_into_many(self) -> bool:
        """Whether the model compiles into more graphs than it has repeated blocks, which may compile whole.

        A few breaks, around all blocks, cost little: the blocks one by one are more graphs than that.
        """
        profile = self.profile
        blocks = sum(len(repeated.paths) for repeated in profile.blocks)
        return bool(profile.graph_breaks and blocks and profile.graph_count > blocks)

    @property
    def trains(self) -> bool:
        """Whether training steps are tuned."""
        return self.profile.step is not None

    @property
    def has_matrix_unit(self) -> bool:
        """Whether a CPU multiplies bf16 matrices in a dedicated unit."""
        return "amx_bf16" in self.environment.cpu_features

    @property
    def has_half_instructions(self) -> bool:
        """Whether a CPU has instructions for bf16 products, but no dedicated matrix unit."""
        return "avx512_bf16" in self.environment.cpu_features and not self.has_matrix_unit

    @property
    def optimizer_share(self) -> float:
        """The optimizer's share of a step's own time; 0 where it is not known, or nothing is trained."""
        return self.profile.step.optimizer_share if self.profile.step else 0.0
