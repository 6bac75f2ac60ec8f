"""Everything that is searched over: one entry each, in the order in which values are chosen and folded."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from autocompile.core.candidate import Value
from autocompile.core.plan import Plan
from autocompile.space.backends import BACKENDS, EAGER, MODES, mode_options
from autocompile.space.dimension import Choice, Dimension, Surroundings, Values


def _compiled(values: Values) -> bool:
    return values["backend"] != EAGER


def _fold_backend(plan: Plan, value: Value, _around: Surroundings) -> Plan:
    return replace(plan, backend="" if value == EAGER else str(value))


def _with_options(plan: Plan, extra: dict[str, Any]) -> Plan:
    return replace(plan, options=dict(sorted({**plan.options, **extra}.items())))


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
    return replace(
        plan,
        dynamic=_DYNAMIC[str(value)],
        ranges=around.varying if value == "marked" else (),
        buckets=around.buckets if value == "buckets" else None,
    )


def _amp_choices(around: Surroundings) -> tuple[Choice, ...]:
    reason = "" if around.has_matrix_products else "the model has no matrix product or convolution to run in it"
    if around.reduced_precision:
        reason = "the model is in reduced precision already"
    return Choice(value="off"), Choice(value="bf16", unavailable=reason), Choice(value="fp16", unavailable=reason)


def _fold_amp(plan: Plan, value: Value, _around: Surroundings) -> Plan:
    return replace(plan, autocast={"off": "", "bf16": "bfloat16", "fp16": "float16"}[str(value)])


def _memory_format_choices(around: Surroundings) -> tuple[Choice, ...]:
    reason = "" if around.has_conv else "the model has no convolution weights"
    return Choice(value="preserve"), Choice(value="channels_last", unavailable=reason)


def _fold_memory_format(plan: Plan, value: Value, _around: Surroundings) -> Plan:
    return replace(plan, memory_format="" if value == "preserve" else str(value))


def _thread_choices(around: Surroundings) -> tuple[Choice, ...]:
    if around.device_type != "cpu":
        return (Choice(value=0),)
    fewer = sorted({1, around.cores // 2} - {0, around.cores}, reverse=True)
    return Choice(value=0), *(Choice(value=count) for count in fewer)


def _fold_threads(plan: Plan, value: Value, _around: Surroundings) -> Plan:
    return replace(plan, threads=int(value))


def _freezing_choices(around: Surroundings) -> tuple[Choice, ...]:
    reason = "" if around.is_module else "a function has no parameters to freeze"
    return Choice(value=False), Choice(value=True, unavailable=reason)


def _fold_freezing(plan: Plan, value: Value, _around: Surroundings) -> Plan:
    return _with_options(plan, {"freezing": True}) if value else plan


def _batch_choices(around: Surroundings) -> tuple[Choice, ...]:
    return Choice(value=0), *(Choice(value=size) for size in around.batches)


def _fold_batch(plan: Plan, value: Value, _around: Surroundings) -> Plan:
    return replace(plan, batch=int(value))


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
        return replace(plan, left_eager=around.breaking)
    if value == "blocks":
        return replace(plan, scope=tuple(path for block in around.blocks for path in block.paths))
    return replace(plan, scope=around.hottest[: int(str(value).removeprefix("hottest-"))])


def _scope_conflict(values: Values, around: Surroundings) -> str:
    cudagraphs = "triton.cudagraphs" in mode_options(str(values["mode"]), around)
    if values["scope"] != "model" and cudagraphs:
        return "CUDA graphs of chained blocks overwrite one another's outputs (pytorch issues 152887, 160281)"
    return ""


DIMENSIONS = (
    Dimension(
        name="backend",
        meaning="the compiler, or eager for none",
        choices=lambda around: tuple(Choice(value=row.name, unavailable=row.unavailable(around)) for row in BACKENDS),
        fold=_fold_backend,
    ),
    Dimension(
        name="mode",
        meaning="the compiler's preset",
        choices=lambda _around: tuple(Choice(value=name) for name in MODES),
        fold=_fold_mode,
        applies=_compiled,
    ),
    Dimension(
        name="dynamic",
        meaning="whether shapes are compiled as symbols; or calls filled up to a few sizes",
        choices=_dynamic_choices,
        fold=_fold_dynamic,
        applies=_compiled,
    ),
    Dimension(
        name="amp",
        meaning="automatic mixed precision",
        choices=_amp_choices,
        fold=_fold_amp,
    ),
    Dimension(
        name="memory_format",
        meaning="layout of convolution weights and images",
        choices=_memory_format_choices,
        fold=_fold_memory_format,
    ),
    Dimension(
        name="threads",
        meaning="CPU threads within an operator; 0 leaves torch's own number",
        choices=_thread_choices,
        fold=_fold_threads,
    ),
    Dimension(
        name="freezing",
        meaning="parameters as constants of the compiled program",
        choices=_freezing_choices,
        fold=_fold_freezing,
        applies=_compiled,
    ),
    Dimension(
        name="scope",
        meaning="what is compiled: the model; each repeated block, with one shared program; the hottest submodules; or "
        "all but what breaks the graph",
        choices=_scope_choices,
        fold=_fold_scope,
        applies=_compiled,
        conflict=_scope_conflict,
    ),
    Dimension(
        name="batch",
        meaning="samples in a call; 0 leaves as many as were given",
        choices=_batch_choices,
        fold=_fold_batch,
    ),
)


def known_values(name: str) -> tuple[Value, ...]:
    """All values that a dimension can take, wherever it runs."""
    anywhere = Surroundings(device_type="cpu", cores=2, is_module=True, has_conv=True, signature_count=2)
    dimension = next(one for one in DIMENSIONS if one.name == name)
    return tuple(choice.value for choice in dimension.choices(anywhere))
