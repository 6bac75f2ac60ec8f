"""The dimensions that only `torch.compile` has. Does not import torch."""

from __future__ import annotations

from msgspec.structs import replace

from autocompile.core.candidate import Value
from autocompile.core.plan import Plan
from autocompile.runtime.compiler_options import FREEZING, MODE, mode_options, with_options
from autocompile.runtime.inductor.settings import with_settings
from autocompile.space.dimension import Choice, Dimension, Values
from autocompile.space.surroundings import Surroundings

NAME = "inductor"
# The dimension and the compiler's option have the same name.
LAYOUT = "layout_optimization"

_DYNAMIC: dict[str, bool | None] = {"auto": None, "static": False, "dynamic": True, "marked": None, "buckets": False}


def _dynamic_choices(around: Surroundings) -> tuple[Choice, ...]:
    static = "" if around.signature_count > 1 else "the inputs have one signature, so auto is the same as static"
    marked = "" if around.varying else "no axis of the inputs varies"
    if around.training:
        marked = "the arguments that the loss passes to the model are not known"
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


def _layout_choices(around: Surroundings) -> tuple[Choice, ...]:
    if around.training is None:
        return (Choice(value=True),)
    reason = "" if around.has_conv else "the model has no convolutions"
    return Choice(value=True), Choice(value=False, unavailable=reason, is_remedy=True)


def _fold_layout(plan: Plan, value: Value, _around: Surroundings) -> Plan:
    return plan if value else with_options(plan, {LAYOUT: False})


# The numbers of hottest submodules to compile; all other submodules stay eager.
_HOTTEST = (1, 2)


def _scope_choices(around: Surroundings) -> tuple[Choice, ...]:
    blocks = "" if around.blocks else "the model has no repeated blocks"
    breaking = "" if around.breaking else "no submodule breaks the graph"
    if around.training:
        breaking = "a copy of the trained model, such as one with averaged weights, would run parts of the original"
    hottest = [Choice(f"hottest-{k}", _too_few(around, k)) for k in _HOTTEST]
    parts = Choice("blocks", blocks), *hottest, Choice("around-breaks", breaking)
    return Choice("model"), *_loss_choices(around), *parts


def _loss_choices(around: Surroundings) -> tuple[Choice, ...]:
    if around.training is None:
        return ()
    own = "the model computes its loss itself, so both are compiled together anyway"
    in_script = "the loss is in the script's own code, which is not changed"
    with_loss = own if around.training.own_loss else in_script if around.in_script else ""
    return Choice("with-loss", with_loss), Choice("optimizer")


def _too_few(around: Surroundings, count: int) -> str:
    return "" if len(around.hottest) >= count else f"there are fewer than {count} parts of the model to choose from"


def _fold_scope(plan: Plan, value: Value, around: Surroundings) -> Plan:
    if value == "model":
        return plan
    if value == "with-loss":
        return with_settings(plan, with_loss=True)
    if value == "optimizer":  # no other setting of the compiler applies to the optimizer's step
        return with_settings(replace(plan, settings={}), only_updates=True)
    if value == "around-breaks":
        return with_settings(plan, left_eager=around.breaking)
    if value == "blocks":
        return with_settings(plan, scope=around.block_paths)
    return with_settings(plan, scope=around.hottest[: int(str(value).removeprefix("hottest-"))])


def _scope_conflict(values: Values, around: Surroundings) -> str:
    if values["scope"] == "optimizer":
        return "" if values["optimizer"] == "compiled" else "nothing would be compiled"
    cudagraphs = "triton.cudagraphs" in mode_options(str(values["mode"]), around)
    if values["scope"] not in ("model", "with-loss") and cudagraphs:
        return "CUDA graphs of chained blocks overwrite one another's outputs (pytorch issues 152887, 160281)"
    return ""


def _budget_choices(around: Surroundings) -> tuple[Choice, ...]:
    if around.training is None:
        return (Choice(value="all"),)
    # Measured with torch 2.13: recomputed dropout draws other random numbers, and the gradients are wrong.
    reason = "operations that the compiler recomputes would draw other random numbers" if around.draws else ""
    return Choice(value="all"), Choice(value="half", unavailable=reason or around.recomputing_is_pointless)


def _fold_budget(plan: Plan, value: Value, _around: Surroundings) -> Plan:
    return with_settings(plan, memory_budget=0.5) if value == "half" else plan


def _budget_conflict(values: Values, _around: Surroundings) -> str:
    if values["memory_budget"] != "all" and values["activations"] != "kept":
        return "blocks are recomputed already, so the compiler has nothing to choose"
    if values["memory_budget"] != "all" and values["scope"] == "optimizer":
        return "the backward pass is not compiled"
    return ""


DIMENSIONS = (
    MODE,
    Dimension(
        name="dynamic",
        meaning="whether shapes are compiled as symbols, or calls are padded to a few sizes",
        choices=_dynamic_choices,
        fold=_fold_dynamic,
    ),
    FREEZING,
    # Measured with torch 2.13 on a CPU: under autocast, a nearest upsampling before a convolution gets no gradient,
    # because the compiler copies the buffer for it into another layout before it adds to it.
    Dimension(
        name=LAYOUT,
        meaning="whether the compiler runs convolutions in channels_last, or in the layout of their inputs",
        choices=_layout_choices,
        fold=_fold_layout,
        after="freezing",
    ),
    Dimension(
        name="scope",
        meaning="what is compiled: the model; the model with its loss; each repeated block, with one shared program; "
        "the hottest submodules; all except the submodules that break the graph; or only the optimizer's step",
        choices=_scope_choices,
        fold=_fold_scope,
        conflict=_scope_conflict,
        after=LAYOUT,
    ),
    Dimension(
        name="memory_budget",
        meaning="how many activations the compiler keeps for the backward pass: all that it would keep by default, or "
        "half as much, and recomputes the rest",
        choices=_budget_choices,
        fold=_fold_budget,
        conflict=_budget_conflict,
        after="scope",
    ),
)
