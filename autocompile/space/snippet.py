"""A plan as plain torch code, to paste without this library."""

from __future__ import annotations

from autocompile.core.plan import Plan
from autocompile.heap import heap_lines
from autocompile.space.backends import MODES

_CAST = '''
def restored(output):
    """Outputs in the precision that the eager model has."""
    cast = lambda leaf: leaf.float() if getattr(leaf, "dtype", None) is torch.{dtype} else leaf
    return torch.utils._pytree.tree_map(cast, output)
'''


_FILLED_UP = """
def filled_up(call, *args, **kwargs):
    \"\"\"Arguments filled up to the next of a few sizes, outputs cut back; other calls as they are.\"\"\"
    names = {keywords}
    if len(args) != {positional} or kwargs.keys() != set(names):
        return call(*args, **kwargs)
    leaves = [*args, *(kwargs[name] for name in names)]
    kinds = [f"{{x.dtype}} {{x.dim()}}" if isinstance(x, torch.Tensor) else repr(x) for x in leaves]
    padded = {padded}
    if kinds != {kinds} or len({{leaves[leaf].shape[axis] for leaf, axis, _value in padded}}) != 1:
        return call(*args, **kwargs)
    size = leaves[padded[0][0]].shape[padded[0][1]]
    more = next((bucket for bucket in {sizes} if bucket >= size), size) - size
    if not more:
        return call(*args, **kwargs)
    for leaf, axis, value in padded:
        behind = [0, 0] * (leaves[leaf].dim() - 1 - axis)
        leaves[leaf] = torch.nn.functional.pad(leaves[leaf], [*behind, 0, more], value=value)
    outputs = call(*leaves[:{positional}], **dict(zip(names, leaves[{positional}:])))
    outputs, spec = torch.utils._pytree.tree_flatten(outputs)
    for leaf, axis in {cut}:
        outputs[leaf] = outputs[leaf].narrow(axis, 0, size).contiguous()
    return torch.utils._pytree.tree_unflatten(outputs, spec)
"""


def snippet(plan: Plan, *, device_type: str, is_module: bool) -> str:
    """Code that defines `run(*args, **kwargs)` from a `model` that is already there."""
    lines = ["import torch", "", *(heap_lines() if device_type == "cpu" else [])]
    if plan.threads:
        lines.append(f"torch.set_num_threads({plan.threads})")
    if plan.memory_format and is_module:
        lines.append(f"model = model.to(memory_format=torch.{plan.memory_format})")
    if plan.options.get("freezing"):
        lines += ["import torch._inductor.config", "torch._inductor.config.freezing = True  # asked for while tracing"]
    lines += _compile_lines(plan)
    lines += _run_lines(plan, device_type)
    return "\n".join(lines) + "\n"


def _compile_lines(plan: Plan) -> list[str]:
    if not plan.compiles:
        return ["compiled = model"]
    keywords = _compile_keywords(plan)
    eager = [
        line
        for path in plan.left_eager
        for line in (
            f"part = model.get_submodule({path!r})",
            "part.forward = torch.compiler.disable(part.forward)",
        )
    ]
    if not plan.scope:
        return [*eager, f"compiled = torch.compile({', '.join(['model', *keywords])})"]
    return [
        f"for path in {list(plan.scope)!r}:",
        f"    model.get_submodule(path).compile({', '.join(keywords)})",
        "compiled = model",
    ]


def _compile_keywords(plan: Plan) -> list[str]:
    keywords = [] if plan.backend == "inductor" else [f"backend={plan.backend!r}"]
    if plan.dynamic is not None:
        keywords.append(f"dynamic={plan.dynamic}")
    mode = next((name for name, options in MODES.items() if options == plan.options), None)
    if mode is None:
        keywords.append(f"options={dict(plan.options)!r}")
    elif mode != "default":
        keywords.append(f"mode={mode!r}")
    return keywords


def _marking_lines(plan: Plan) -> list[str]:
    if not plan.ranges:
        return []
    ranges = [(one.leaf, one.axis, one.low, one.high) for one in plan.ranges]
    return [
        "    leaves = torch.utils._pytree.tree_leaves((args, kwargs))",
        f"    for leaf, axis, low, high in {ranges}:",
        "        torch._dynamo.mark_dynamic(leaves[leaf], axis, min=low, max=high)",
    ]


def _padding_lines(plan: Plan) -> list[str]:
    if plan.buckets is None:
        return []
    filling = _FILLED_UP.format(
        keywords=list(plan.buckets.keywords),
        positional=plan.buckets.positional,
        kinds=list(plan.buckets.kinds),
        sizes=list(plan.buckets.sizes),
        padded=[(one.leaf, one.axis, one.fill) for one in plan.buckets.padded],
        cut=[(one.leaf, one.axis) for one in plan.buckets.cut],
    )
    return filling.rstrip().splitlines()


def _run_lines(plan: Plan, device_type: str) -> list[str]:
    call = "filled_up(compiled, *args, **kwargs)" if plan.buckets else "compiled(*args, **kwargs)"
    lines = [*_padding_lines(plan), "", "def run(*args, **kwargs):", *_marking_lines(plan)]
    if not plan.autocast:
        return [*lines, "    with torch.no_grad():", f"        return {call}"]
    helper = _CAST.format(dtype=plan.autocast).splitlines()
    return [
        *helper,
        *lines,
        f"    with torch.no_grad(), torch.autocast({device_type!r}, dtype=torch.{plan.autocast}):",
        f"        return restored({call})",
    ]
