"""The part of the snippet for `torch.compile`. Does not import torch."""

from __future__ import annotations

from autocompile.core.plan import Plan
from autocompile.runtime.compiler_options import MODES
from autocompile.runtime.inductor.settings import Settings, settings_of
from autocompile.runtime.kind import Lines

_FILLED_UP = """
def filled_up(call, *args, **kwargs):
    \"\"\"Pad the arguments to the next of a few sizes and cut the outputs back; make other calls unchanged.\"\"\"
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


_PARTS = """
def inlined(call):
    \"\"\"Return the same call from code outside of torch: modules of torch itself are not compiled alone.\"\"\"
    return lambda *args, **kwargs: call(*args, **kwargs)

for path in {paths!r}:
    part = model.get_submodule(path)
    call = inlined(part._call_impl) if type(part).__module__.startswith("torch.") else part._call_impl
    part._compiled_call_impl = torch.compile({arguments})
compiled = model
"""


_OWNED = """
def owned(output):
    \"\"\"Return a copy, because CUDA graphs write each output into the same memory again.\"\"\"
    copied = lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf
    return torch.utils._pytree.tree_map(copied, output)
"""


def lines_of(plan: Plan) -> Lines:
    """Return the lines that compile a `model` and call it."""
    settings = settings_of(plan)
    call = "filled_up(compiled, *args, **kwargs)" if settings.buckets else Lines.call
    reuses_outputs = settings.options.get("triton.cudagraphs")
    setup = (*_settings_lines(settings), *_compile_lines(settings))
    is_whole = not (settings.scope or settings.with_loss or settings.only_updates)
    return Lines(
        setup=setup,
        setup_to_train=(*setup, *_own_calls_lines(settings)) if is_whole else (),
        helpers=(*_padding_lines(settings), *(_OWNED.rstrip().splitlines() if reuses_outputs else ())),
        before_call=tuple(_marking_lines(settings)),
        call=f"owned({call})" if reuses_outputs else call,
        loss="compiled_loss(model, batch)" if settings.with_loss else Lines.loss,
    )


def _settings_lines(settings: Settings) -> list[str]:
    return [*_recurrent_lines(settings), *_freezing_lines(settings), *_budget_lines(settings)]


def _recurrent_lines(settings: Settings) -> list[str]:
    if not settings.recurrent:
        return []
    allowed = "torch._dynamo.config.allow_rnn = True  # otherwise LSTMs and other RNNs stay eager"
    return ["import torch._dynamo.config", allowed]


def _freezing_lines(settings: Settings) -> list[str]:
    if not settings.options.get("freezing"):
        return []
    return ["import torch._inductor.config", "torch._inductor.config.freezing = True  # read while tracing"]


def _budget_lines(settings: Settings) -> list[str]:
    if settings.memory_budget == 1:
        return []
    share = f"torch._functorch.config.activation_memory_budget = {settings.memory_budget}"
    return ["import torch._functorch.config", f"{share}  # the rest is recomputed in backward"]


def _own_calls_lines(settings: Settings) -> list[str]:
    keywords = ", ".join(_compile_keywords(settings))
    return [f"model.compile({keywords})  # for methods of the model that call it; not needed if the loss calls none"]


def _left_eager_lines(settings: Settings) -> list[str]:
    return [
        line
        for path in settings.left_eager
        for line in (
            f"part = model.get_submodule({path!r})",
            "part.forward = torch.compiler.disable(part.forward)",
        )
    ]


def _compile_lines(settings: Settings) -> list[str]:
    keywords, eager = _compile_keywords(settings), _left_eager_lines(settings)
    if settings.only_updates:
        return ["compiled = model"]
    if settings.with_loss:
        return [*eager, f"compiled_loss = torch.compile({', '.join(['loss', *keywords])})  # compiles the model, too"]
    if not settings.scope:
        return [*eager, f"compiled = torch.compile({', '.join(['model', *keywords])})"]
    arguments = ", ".join(["call", *keywords])
    return _PARTS.format(paths=list(settings.scope), arguments=arguments).strip().splitlines()


def _compile_keywords(settings: Settings) -> list[str]:
    keywords = [] if settings.backend == "inductor" else [f"backend={settings.backend!r}"]
    if settings.dynamic is not None:
        keywords.append(f"dynamic={settings.dynamic}")
    mode = next((name for name, options in MODES.items() if options == settings.options), None)
    if mode is None:
        keywords.append(f"options={dict(settings.options)!r}")
    elif mode != "default":
        keywords.append(f"mode={mode!r}")
    return keywords


def _marking_lines(settings: Settings) -> list[str]:
    if not settings.ranges:
        return []
    ranges = [(one.leaf, one.axis, one.low, one.high) for one in settings.ranges]
    return [
        "    leaves = torch.utils._pytree.tree_leaves((args, kwargs))",
        f"    for leaf, axis, low, high in {ranges}:",
        "        torch._dynamo.mark_dynamic(leaves[leaf], axis, min=low, max=high)",
    ]


def _padding_lines(settings: Settings) -> list[str]:
    if settings.buckets is None:
        return []
    filling = _FILLED_UP.format(
        keywords=list(settings.buckets.keywords),
        positional=settings.buckets.positional,
        kinds=list(settings.buckets.kinds),
        sizes=list(settings.buckets.sizes),
        padded=[(one.leaf, one.axis, one.fill) for one in settings.buckets.padded],
        cut=[(one.leaf, one.axis) for one in settings.buckets.cut],
    )
    return filling.rstrip().splitlines()
