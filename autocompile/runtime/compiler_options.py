"""The options of torch's compiler that are dimensions, for all runtimes that use this compiler.

Does not import torch.
"""

from __future__ import annotations

from msgspec.structs import replace

from autocompile.core.candidate import Value
from autocompile.core.plan import Plan
from autocompile.space.dimension import Choice, Dimension
from autocompile.space.surroundings import Surroundings

Option = str | int | bool

# The presets of torch._inductor.list_mode_options(); a test compares them with the installed torch.
MODES: dict[str, dict[str, Option]] = {
    "default": {},
    "reduce-overhead": {"triton.cudagraphs": True},
    "max-autotune-no-cudagraphs": {"coordinate_descent_tuning": True, "max_autotune": True},
    "max-autotune": {"coordinate_descent_tuning": True, "max_autotune": True, "triton.cudagraphs": True},
}

# Options that act on Triton kernels and CUDA graphs only.
_GPU_ONLY = frozenset({"triton.cudagraphs", "coordinate_descent_tuning"})

# Stop the compiler from printing a table to standard error for everything that it times. Some versions of torch do not
# have these options.
SILENT: dict[str, Option] = {"max_autotune_report_choices_stats": False, "autotune_num_choices_displayed": 0}


def mode_options(mode: str, around: Surroundings) -> dict[str, Option]:
    """Return the options of a mode that have an effect here.

    On a CPU, `reduce-overhead` is the same as `default`. `max-autotune` tunes matrix products there; for a model
    without matrix products it is therefore the same as `default`, too.
    """
    without = _GPU_ONLY if around.device_type == "cpu" else frozenset()
    if around.device_type == "cpu" and not around.has_matrix_products:
        without |= {"max_autotune"}
    return {name: value for name, value in MODES[mode].items() if name not in without}


def options_of(plan: Plan) -> dict[str, Option]:
    """Return the compiler's options in a plan's settings."""
    return dict(plan.settings.get("options", {}))


def times_variants(plan: Plan) -> bool:
    """Return whether the compiler times variants of matrix products or kernels under a plan's options."""
    options = options_of(plan)
    return bool(options.get("max_autotune") or options.get("coordinate_descent_tuning"))


def with_options(plan: Plan, extra: dict[str, Option]) -> Plan:
    """Return the plan with additional options, sorted by key."""
    options = dict(sorted({**options_of(plan), **extra}.items()))
    return replace(plan, settings={**plan.settings, "options": options}) if options else plan


def _fold_mode(plan: Plan, value: Value, around: Surroundings) -> Plan:
    return with_options(plan, mode_options(str(value), around))


def _freezing_choices(around: Surroundings) -> tuple[Choice, ...]:
    reason = "" if around.is_module else "a function has no parameters to freeze"
    if around.training:
        reason = "training changes the parameters at every step"
    return Choice(value=False), Choice(value=True, unavailable=reason)


def _fold_freezing(plan: Plan, value: Value, _around: Surroundings) -> Plan:
    return with_options(plan, {"freezing": True}) if value else plan


MODE = Dimension(
    name="mode",
    meaning="the compiler's preset",
    choices=lambda _around: tuple(Choice(value=name) for name in MODES),
    fold=_fold_mode,
)
FREEZING = Dimension(
    name="freezing",
    meaning="parameters as constants of the compiled program",
    choices=_freezing_choices,
    fold=_fold_freezing,
    after="threads",
)
