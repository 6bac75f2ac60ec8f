"""What the profile and the machine tell about what may pay, before anything is tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autocompile.core.bound import STARVED_GPU
from autocompile.core.environment import Environment
from autocompile.core.profile import Profile


@dataclass(frozen=True)
class Evidence:
    """What rules and priors may look at; `eager_ms`: what a call takes in eager, in milliseconds by batch size."""

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
        """Whether a GPU waits for its launches."""
        busy = self.profile.busy
        return self.device_type == "cuda" and busy is not None and busy < STARVED_GPU

    @property
    def starting_bounds_cpu(self) -> bool:
        """Whether a CPU is busy with starting operators, most of all."""
        return self.on_cpu and self.profile.bound == "overhead"

    @property
    def blocks_outside_breaks(self) -> bool:
        """Whether the graph breaks, and there are repeated blocks that may be whole."""
        return bool(self.profile.graph_breaks and self.profile.blocks)

    @property
    def trains(self) -> bool:
        """Whether steps of training are tuned."""
        return self.profile.step is not None

    @property
    def has_matrix_unit(self) -> bool:
        """Whether a CPU multiplies bf16 matrices in a unit made for it."""
        return "amx_bf16" in self.environment.cpu_features

    @property
    def has_half_instructions(self) -> bool:
        """Whether a CPU has instructions for products of bf16, and no unit made for matrices of it."""
        return "avx512_bf16" in self.environment.cpu_features and not self.has_matrix_unit

    @property
    def optimizer_share(self) -> float:
        """What the optimizer takes of a step of its own time; 0 where it is not known, or none trains."""
        return self.profile.step.optimizer_share if self.profile.step else 0.0
