"""Write a plan as plain torch code that runs without autocompile. Does not import torch."""

from __future__ import annotations

from autocompile.core.pipeline import LoaderSetting
from autocompile.core.plan import Plan
from autocompile.core.workload import GenerationEntry, TrainingEntry
from autocompile.heap import heap_lines
from autocompile.runtime import generation_snippet
from autocompile.runtime.catalogue import kind_of
from autocompile.runtime.kind import Lines
from autocompile.runtime.training_snippet import recomputing_lines, step_lines

_CAST = '''
def restored(output):
    """Return the outputs in the precision of the eager model."""
    cast = lambda leaf: leaf.float() if getattr(leaf, "dtype", None) is torch.{dtype} else leaf
    return torch.utils._pytree.tree_map(cast, output)
'''
_ATTENTION = [
    "torch.backends.cuda.enable_flash_sdp(False)  # on the CPU, too: attention as separate products",
    'torch.compiler.config.cache_key_tag += "attention=math"  # otherwise cached programs may have the other way',
]


def snippet(
    plan: Plan,
    *,
    device_type: str,
    is_module: bool,
    training: TrainingEntry | None = None,
    loader: LoaderSetting | None = None,
    generation: GenerationEntry | None = None,
) -> str:
    """Return code that defines `run(*args, **kwargs)` from an existing `model`.

    With `training`, the code defines `step(*batches)` from the `model`, the `optimizer` and the `loss`, a function of a
    model and a batch. If `loader` is given, a comment names this setting for the batches. With `generation`, the code
    also defines `generate(ids, new_tokens)`, for which `run` is the decode step, or the call for a prompt.
    """
    own = kind_of(plan).lines(plan)
    lines = ["import torch", "", *(heap_lines() if device_type == "cpu" else [])]
    if plan.float32:
        lines.append("torch.backends.cuda.matmul.allow_tf32 = True")
    if plan.attention:
        lines += _ATTENTION[: 1 if plan.is_eager else None]
    if plan.threads:
        lines.append(f"torch.set_num_threads({plan.threads})")
    if plan.memory_format and is_module:
        lines.append(f"model = model.to(memory_format=torch.{plan.memory_format})")
    if loader:
        lines.append(f"# faster data loading: DataLoader(..., {loader})")
    lines += recomputing_lines(plan)
    if generation and kind_of(plan).compiles:
        lines += generation_snippet.step_lines(generation)
    defined = step_lines(plan, own.loss, device_type, training) if training else _run_lines(plan, own, device_type)
    if generation and kind_of(plan).compiles:
        defined = [*defined, *generation_snippet.loop_lines(generation)]
    setup = (training is not None and own.setup_to_train) or own.setup
    return "\n".join([*lines, *setup, *defined]) + "\n"


def _run_lines(plan: Plan, own: Lines, device_type: str) -> list[str]:
    lines = [*own.helpers, "", "def run(*args, **kwargs):", *own.before_call]
    if not plan.autocast:
        return [*lines, "    with torch.no_grad():", f"        return {own.call}"]
    helper = _CAST.format(dtype=plan.autocast).splitlines()
    return [
        *helper,
        *lines,
        f"    with torch.no_grad(), torch.autocast({device_type!r}, dtype=torch.{plan.autocast}):",
        f"        return restored({own.call})",
    ]
