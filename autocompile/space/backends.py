"""The compilers that can be tried: one row each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autocompile.space.dimension import Surroundings

EAGER = "eager"
INDUCTOR = "inductor"


@dataclass(frozen=True)
class Backend:
    """A name as `torch.compile(backend=...)` takes it, and why it may be unavailable ("" if it is not)."""

    name: str
    unavailable: Callable[[Surroundings], str]


BACKENDS = (
    Backend(EAGER, lambda _around: ""),
    Backend(INDUCTOR, lambda around: around.compiler_problem),
)

# The presets of torch._inductor.list_mode_options(); a test compares them with the installed torch.
MODES: dict[str, dict[str, str | int | bool]] = {
    "default": {},
    "reduce-overhead": {"triton.cudagraphs": True},
    "max-autotune-no-cudagraphs": {"coordinate_descent_tuning": True, "max_autotune": True},
    "max-autotune": {"coordinate_descent_tuning": True, "max_autotune": True, "triton.cudagraphs": True},
}

# Options that act on Triton kernels and CUDA graphs only.
_GPU_ONLY = frozenset({"triton.cudagraphs", "coordinate_descent_tuning"})


def mode_options(mode: str, around: Surroundings) -> dict[str, str | int | bool]:
    """What a mode sets that changes anything here.

    On a CPU `reduce-overhead` is the same as `default`; `max-autotune` tunes matrix products there, so
    without any it is `default` too.
    """
    without = _GPU_ONLY if around.device_type == "cpu" else frozenset()
    if around.device_type == "cpu" and not around.has_matrix_products:
        without |= {"max_autotune"}
    return {name: value for name, value in MODES[mode].items() if name not in without}
