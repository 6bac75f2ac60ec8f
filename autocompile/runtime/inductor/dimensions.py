"""What only `torch.compile` can vary: one entry each. No torch."""

from __future__ import annotations

from autocompile.core.candidate import Value
from autocompile.core.plan import Plan
from autocompile.runtime.inductor.settings import Option, settings_of, with_settings
from autocompile.space.dimension import Choice, Dimension, Values
from autocompile.space.surroundings import Surroundings

NAME = "inductor"

# The presets of torch._inductor.list_mode_options(); a test compares them with the installed torch.
MODES: dict[str, dict[str, Option]] = {
    "default": {},
    "reduce-overhead": {"triton.cudagraphs": True},
    "max-autotune-no-cudagraphs": {"coordinate_descent_tuning": True, "max_autotune": True},
    "max-autotune": {"coordinate_descent_tuning": True, "max_autotune": True, "triton.cudagraphs": True},
}

# Options that act on Triton kernels and CUDA graphs only.
_GPU_ONLY = frozenset({"triton.cudagraphs", "coordinate_descent_tuning"})


def mode_options(mode: str, around: Surroundings) -> dict[str, Option]:
    """What a mode sets that changes anything here.

    On a CPU `reduce-overhead` is the same as `default`; `max-autotune` tunes matrix products there, so
    without any it is `default` too.
    """
    without = _GPU_ONLY if around.device_type == "cpu" else frozenset()
    if around.device_type == "cpu" and not around.has_matrix_products:
        without |= {"max_autotune"}
    return {name: value for name, value in MODES[mode].items() if name not in without}


def _applies(values: Values) -> bool:
    return values["runtime"] == NAME


def _with_options(plan: Plan, extra: dict[str, Option]) -> Plan:
    return with_settings(plan, options=dict(sorted({**settings_of(plan).options, **extra}.items())))


def _fold_mode(plan: Plan, value: Value, around: Surroundings) -> Plan:
    return _with_options(plan, mode_options(str(value), around))


_DYNAMIC: dict[str, bool | None] = {"auto": None, "static": False, "dynamic": True, "marked": None, "buckets": False}


def _dynamic_choices(around: Surroundings) -> tuple[Choice, ...]:
    static = "" if around.signature_count > 1 else "the inputs have one signature, for which automatic is static"
    marked = "" if around.varying else "no axis of the inputs varies"
    buckets = "" if around.buckets else around.padding_problem or marked or "it was not tried"
    return (
        Choice(value="auto"),
        Choice(value="static", unavailable=static),
        Choice(value="dynamic"),
        Choice(value="marked", unavailable=marked),
        Choice(value="buckets", unavailable=buckets),
    )


def _fold_dynamic(plan: Plan, value: Value, around: Surroundings) -> Plan:
    return with_settings(
        plan,
        dynamic=_DYNAMIC[str(value)],
        ranges=around.varying if value == "marked" else (),
        buckets=around.buckets if value == "buckets" else None,
    )


def _freezing_choices(around: Surroundings) -> tuple[Choice, ...]:
    reason = "" if around.is_module else "a function has no parameters to freeze"
    return Choice(value=False), Choice(value=True, unavailable=reason)


def _fold_freezing(plan: Plan, value: Value, _around: Surroundings) -> Plan:
    return _with_options(plan, {"freezing": True}) if value else plan


# So many of the hottest submodules are compiled, and no others.
_HOTTEST = (1, 2)


def _scope_choices(around: Surroundings) -> tuple[Choice, ...]:
    blocks = "" if around.blocks else "the model has no repeated blocks"
    breaking = "" if around.breaking else "no submodule breaks the graph"
    hottest = [Choice(f"hottest-{k}", _too_few(around, k)) for k in _HOTTEST]
    return Choice("model"), Choice("blocks", blocks), *hottest, Choice("around-breaks", breaking)


def _too_few(around: Surroundings, count: int) -> str:
    return "" if len(around.hottest) >= count else f"there are fewer than {count} parts of a call to choose from"


def _fold_scope(plan: Plan, value: Value, around: Surroundings) -> Plan:
    if value == "model":
        return plan
    if value == "around-breaks":
        return with_settings(plan, left_eager=around.breaking)
    if value == "blocks":
        return with_settings(plan, scope=tuple(path for block in around.blocks for path in block.paths))
    return with_settings(plan, scope=around.hottest[: int(str(value).removeprefix("hottest-"))])


def _scope_conflict(values: Values, around: Surroundings) -> str:
    cudagraphs = "triton.cudagraphs" in mode_options(str(values["mode"]), around)
    if values["scope"] != "model" and cudagraphs:
        return "CUDA graphs of chained blocks overwrite one another's outputs (pytorch issues 152887, 160281)"
    return ""


DIMENSIONS = (
    Dimension(
        name="mode",
        meaning="the compiler's preset",
        choices=lambda _around: tuple(Choice(value=name) for name in MODES),
        fold=_fold_mode,
        applies=_applies,
    ),
    Dimension(
        name="dynamic",
        meaning="whether shapes are compiled as symbols; or calls filled up to a few sizes",
        choices=_dynamic_choices,
        fold=_fold_dynamic,
        applies=_applies,
    ),
    Dimension(
        name="freezing",
        meaning="parameters as constants of the compiled program",
        choices=_freezing_choices,
        fold=_fold_freezing,
        applies=_applies,
        after="threads",
    ),
    Dimension(
        name="scope",
        meaning="what is compiled: the model; each repeated block, with one shared program; the hottest submodules; or "
        "all but what breaks the graph",
        choices=_scope_choices,
        fold=_fold_scope,
        applies=_applies,
        conflict=_scope_conflict,
        after="freezing",
    ),
)
