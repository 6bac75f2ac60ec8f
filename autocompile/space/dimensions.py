"""The dimensions that all runtimes share: one entry each, in the order in which values are chosen and folded."""

from __future__ import annotations

from msgspec.structs import replace

from autocompile.core.candidate import Value
from autocompile.core.plan import Plan
from autocompile.space.dimension import Choice, Dimension, Values
from autocompile.space.surroundings import Surroundings


def _amp_choices(around: Surroundings) -> tuple[Choice, ...]:
    reason = "" if around.has_matrix_products else "the model has no matrix product or convolution that could use it"
    if around.reduced_precision:
        reason = "the model is in reduced precision already"
    if around.double_precision:
        reason = "the model is in double precision, which autocast does not change"
    reason = reason or _search_reason(around)
    return (
        Choice(value="off"),
        Choice(value="bf16", unavailable=reason),
        Choice(value="fp16", unavailable=reason or _scaling_problem(around)),
    )


def _scaling_problem(around: Surroundings) -> str:
    """Return why a loss cannot be scaled, or "". Without scaling, gradients in float16 underflow."""
    if around.training is None:
        return ""
    if around.device_type != "cuda":
        return "on a CPU, bf16 costs the same, and its gradients need no loss scaling"
    if around.in_script:
        return "its gradients underflow without loss scaling, and the script computes them itself"
    return around.training.without.get("fp16", "")


def _search_reason(around: Surroundings) -> str:
    """Return why the loss of an optimizer that calls it itself is not computed in lower precision, or "".

    A single call in bfloat16 is accurate enough, but the search of such an optimizer fails: LBFGS fitted a perceptron
    to 8e-6 or less in float32, but only to 2e-4 or more in bfloat16. With a line search, which then ends early, it
    reached 1e-3 or more.
    """
    if around.training is None or not around.training.by_closure:
        return ""
    return (
        f"{around.training.optimizer} relies on differences of losses and gradients between calls, which become "
        "smaller than the rounding errors of a lower precision"
    )


def _fold_amp(plan: Plan, value: Value, _around: Surroundings) -> Plan:
    return replace(plan, autocast={"off": "", "bf16": "bfloat16", "fp16": "float16"}[str(value)])


def _float32_choices(around: Surroundings) -> tuple[Choice, ...]:
    if around.device_type != "cuda":
        return (Choice(value="given"),)
    reason = "" if around.has_matrix_products else "the model has no matrix product that could use it"
    if around.reduced_precision:
        reason = "the model is in reduced precision already"
    if around.multiplies_in_tf32:
        reason = "torch is already set to use TF32"
    without = next((gpu for gpu in around.gpus if not gpu.has_tf32), None)
    if without is not None:
        reason = f"{without.name} has compute capability {without.capability}, and TF32 begins with 8.0"
    reason = reason or _search_reason(around)
    if around.in_script and around.training:
        reason = "it is a setting of the process, and would not apply to the script's own backward pass"
    return Choice(value="given"), Choice(value="tf32", unavailable=reason)


def _fold_float32(plan: Plan, value: Value, _around: Surroundings) -> Plan:
    return plan if value == "given" else replace(plan, float32=str(value))


def _float32_conflict(values: Values, _around: Surroundings) -> str:
    if values["float32"] != "given" and values["amp"] != "off":
        return "under autocast, matrix products are computed in its dtype"
    return ""


def _attention_choices(around: Surroundings) -> tuple[Choice, ...]:
    if around.device_type != "cpu":
        return (Choice(value="given"),)
    reason = "" if around.fuses_attention else "the model does not compute attention in torch's fused kernel"
    return Choice(value="given"), Choice(value="math", unavailable=reason)


def _fold_attention(plan: Plan, value: Value, _around: Surroundings) -> Plan:
    return plan if value == "given" else replace(plan, attention=str(value))


def _memory_format_choices(around: Surroundings) -> tuple[Choice, ...]:
    reason = "" if around.has_conv else "the model has no convolution weights"
    if around.training and around.training.by_closure:
        reason = reason or f"{around.training.optimizer} flattens gradients in the order of their memory"
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


def _batch_choices(around: Surroundings) -> tuple[Choice, ...]:
    return Choice(value=0), *(Choice(value=size) for size in around.batches)


def _fold_batch(plan: Plan, value: Value, _around: Surroundings) -> Plan:
    return replace(plan, batch=int(value))


def _sizes_choices(around: Surroundings) -> tuple[Choice, ...]:
    reason = "the given calls differ in size" if around.signature_count > 1 else ""
    if around.free_batch is False:
        reason = "the batch cannot vary, so the sizes are fixed anyway"
    if not around.loads_artifacts:
        reason = "without an artifact, each program is made for its own call anyway"
    if around.training:
        reason = "this affects only packed programs, and a training is not packed"
    return Choice(value="free"), Choice(value="fixed", unavailable=reason)


def _fold_sizes(plan: Plan, value: Value, _around: Surroundings) -> Plan:
    return replace(plan, sizes="" if value == "free" else str(value))


# The share of a step: fusing saves at most half of the optimizer's time, and compiling it takes seconds.
_WORTH_COMPILING = 0.08


def _optimizer_choices(around: Surroundings) -> tuple[Choice, ...]:
    if around.training is None:
        return (Choice(value="given"),)
    without = around.training.without
    compiled = without.get("compiled", "") or _too_little_to_compile(around.optimizer_share)
    others = (Choice(name, without.get(name, "")) for name in ("foreach", "fused"))
    return Choice(value="given"), *others, Choice("compiled", compiled)


def _too_little_to_compile(share: float | None) -> str:
    if share is None or share >= _WORTH_COMPILING:
        return ""
    return f"the optimizer takes {share:.0%} of a step, too little for compiling it to pay off"


def _fold_optimizer(plan: Plan, value: Value, _around: Surroundings) -> Plan:
    return replace(plan, optimizer="" if value == "given" else str(value))


def _activations_choices(around: Surroundings) -> tuple[Choice, ...]:
    if around.training is None:
        return (Choice(value="kept"),)
    blocks = "" if around.blocks else "the model has no repeated blocks"
    reason = blocks or around.recompute_problem or around.recomputing_is_pointless
    return Choice(value="kept"), Choice(value="checkpoint", unavailable=reason)


def _fold_activations(plan: Plan, value: Value, around: Surroundings) -> Plan:
    return replace(plan, recomputed=around.block_paths) if value == "checkpoint" else plan


def _micro_batches_choices(around: Surroundings) -> tuple[Choice, ...]:
    if around.training is None:
        return (Choice(value=1),)
    if around.in_script:
        reason = "the script splits its batches itself, and is not changed"
        return Choice(value=1), *(Choice(count, reason) for count in (2, 4))
    untried = "whether it learns the same was not checked, as too little of the budget is left"
    return Choice(value=1), *(Choice(count, around.micro_batches.get(str(count), untried)) for count in (2, 4))


def _micro_batches_conflict(values: Values, _around: Surroundings) -> str:
    if values["micro_batches"] != 1 and values["batch"] != 0:
        return "micro-batches were verified only at the given batch size"
    return ""


def _fold_micro_batches(plan: Plan, value: Value, _around: Surroundings) -> Plan:
    return replace(plan, micro_batches=int(value))


SHARED = (
    Dimension(
        name="amp",
        meaning="automatic mixed precision",
        choices=_amp_choices,
        fold=_fold_amp,
    ),
    Dimension(
        name="float32",
        meaning="precision of float32 matrix products on a GPU: as torch is set (given), or TF32",
        choices=_float32_choices,
        fold=_fold_float32,
        conflict=_float32_conflict,
    ),
    Dimension(
        name="attention",
        meaning="attention on a CPU: as torch chooses (given), or as separate matrix products (math)",
        choices=_attention_choices,
        fold=_fold_attention,
    ),
    Dimension(
        name="memory_format",
        meaning="layout of convolution weights and images",
        choices=_memory_format_choices,
        fold=_fold_memory_format,
    ),
    Dimension(
        name="threads",
        meaning="CPU threads within an operator; 0 keeps torch's default",
        choices=_thread_choices,
        fold=_fold_threads,
    ),
    Dimension(
        name="batch",
        meaning="samples per call; 0 keeps the given number",
        choices=_batch_choices,
        fold=_fold_batch,
    ),
    Dimension(
        name="sizes",
        meaning="sizes that a program takes: a range, where the model allows it (free), or only the given ones (fixed)",
        choices=_sizes_choices,
        fold=_fold_sizes,
    ),
    Dimension(
        name="optimizer",
        meaning="implementation of the optimizer: as given, one that works on many parameters at once (foreach), "
        "one that does an update in one kernel (fused), or its step compiled (compiled)",
        choices=_optimizer_choices,
        fold=_fold_optimizer,
    ),
    Dimension(
        name="activations",
        meaning="what the backward pass needs of each repeated block: kept, or recomputed from the block's "
        "arguments (checkpoint)",
        choices=_activations_choices,
        fold=_fold_activations,
    ),
    Dimension(
        name="micro_batches",
        meaning="number of equal parts into which a batch is split; their gradients are added",
        choices=_micro_batches_choices,
        fold=_fold_micro_batches,
        conflict=_micro_batches_conflict,
    ),
)
