"""Write a training step as plain torch code. Does not import torch."""

from __future__ import annotations

from collections.abc import Iterator

from autocompile.core.plan import Plan
from autocompile.core.workload import TrainingEntry

_OTHER = {"foreach": "fused", "fused": "foreach"}
_LAID_OUT = """
for parameter, state in optimizer.state.items():  # fused implementations need the layout of the parameters
    alike = [key for key, value in state.items() if torch.is_tensor(value) and value.shape == parameter.shape]
    state.update({key: torch.empty_like(parameter, dtype=state[key].dtype).copy_(state[key]) for key in alike})
"""
_COMPILED = """
for group in optimizer.param_groups:
    group.update({name: name == "foreach" for name in ("foreach", "fused") if name in group})
    if "capturable" in group:  # so that counters and learning rates are tensors in the program
        group["capturable"] = True
    group["lr"] = torch.as_tensor(group["lr"])  # a scheduler fills it; a number would cause recompilation
compiled_update = torch.compile(optimizer.step)
"""
_RECOMPUTED = '''
class Recomputed:
    """A module's forward, recomputed in backward. It is an object, so that a copy of the module runs its own copy."""

    def __init__(self, forward):
        self.forward = forward

    def __call__(self, *args, **kwargs):
        return torch.utils.checkpoint.checkpoint(self.forward, *args, use_reentrant=False, **kwargs)

for path in {paths}:
    part = model.get_submodule(path)
    part.forward = Recomputed(part.forward)
'''
_PARTS = '''
def parts(batch):
    """Return the batch in {count} equal parts, or whole if it cannot be split equally."""
    leaves, spec = torch.utils._pytree.tree_flatten(batch)
    sizes = {{leaf.shape[0] for leaf in leaves if torch.is_tensor(leaf) and leaf.dim()}}
    if len(sizes) != 1 or sum(sizes) % {count} or not sum(sizes):
        return [batch]
    cut = [leaf.chunk({count}) if torch.is_tensor(leaf) and leaf.dim() else [leaf] * {count} for leaf in leaves]
    return [torch.utils._pytree.tree_unflatten(list(part), spec) for part in zip(*cut)]
'''
_OWN_LOSS = '''
from collections.abc import Mapping

def loss(model, batch):
    """Return the loss in the model's output."""
    if isinstance(batch, Mapping):
        output = model(**batch)
    else:
        output = model(*batch) if isinstance(batch, (tuple, list)) else model(batch)
    return output["loss"] if isinstance(output, Mapping) else output.loss
'''


def step_lines(plan: Plan, loss: str, device_type: str, training: TrainingEntry) -> list[str]:
    """Return the lines that define `step(*batches)`, after `model`, `optimizer` and the runtime's setup.

    `loss` is the runtime's expression for the loss of a `batch`.
    """
    return [
        *([f"# use batches of {plan.batch} samples; the size of batches affects learning"] if plan.batch else ()),
        *_optimizer_lines(plan.optimizer),
        *(_scaler_lines(plan, device_type) if _scales(plan) else ()),
        *(_LAID_OUT.strip().splitlines() if plan.memory_format else ()),
        *(_OWN_LOSS.rstrip().splitlines() if training.own_loss else ()),
        *(_PARTS.format(count=plan.micro_batches).rstrip().splitlines() if plan.micro_batches > 1 else ()),
        "",
        "def step(*batches):",
        *(f"    {line}" if line else "" for line in _step(plan, loss, device_type, training)),
    ]


def recomputing_lines(plan: Plan) -> list[str]:
    """Return the lines that make blocks of `model` recompute their activations; they precede all compilation."""
    if not plan.recomputed:
        return []
    return ["import torch.utils.checkpoint", *_RECOMPUTED.format(paths=list(plan.recomputed)).splitlines(), ""]


def _batches(training: TrainingEntry) -> str:
    return f"{training.accumulate} batches" if training.accumulate > 1 else "a batch"


def _optimizer_lines(name: str) -> Iterator[str]:
    if name == "compiled":
        yield from _COMPILED.strip().splitlines()
        return
    if not name:
        return
    yield "for group in optimizer.param_groups:"
    yield f"    group.update({name}=True, {_OTHER[name]}=False)"
    yield "optimizer.load_state_dict(optimizer.state_dict())  # converts its state for this implementation"


def _step(plan: Plan, loss: str, device_type: str, training: TrainingEntry) -> Iterator[str]:
    body = _body(plan, loss, device_type, training)
    if not training.by_closure:
        yield f'"""Do one step on {_batches(training)} and return its loss."""'
        yield from body
        yield from _update(plan)
        yield "return total"
        return
    yield f'"""Do one step on {_batches(training)}, in which the optimizer calls the closure; return the first loss."""'
    yield ""
    yield "def closure():"
    yield from (f"    {line}" for line in body)
    yield "    return total"
    yield ""
    yield "return optimizer.step(closure)"


def _body(plan: Plan, loss: str, device_type: str, training: TrainingEntry) -> Iterator[str]:
    cuts = plan.micro_batches > 1
    yield "model.zero_grad()"
    yield "total = 0.0"
    yield "for batch in batches:"
    if cuts:
        yield "    cut = parts(batch)"
        yield "    for batch in cut:"
    lines = _learning(plan, loss, device_type, _divisor(training, cuts=cuts))
    yield from (f"{'    ' * (1 + cuts)}{line}" for line in lines)
    if training.clip_norm is not None:
        if _scales(plan):
            yield "scaler.unscale_(optimizer)"
        yield f"torch.nn.utils.clip_grad_norm_(model.parameters(), {training.clip_norm!r})"


def _update(plan: Plan) -> Iterator[str]:
    if _scales(plan):
        yield "scaler.step(optimizer)"
        yield "scaler.update()"
    else:
        yield "compiled_update()" if plan.optimizer == "compiled" else "optimizer.step()"


def _scales(plan: Plan) -> bool:
    """Return whether gradients must be scaled, because they would underflow in float16."""
    return plan.autocast == "float16"


def _scaler_lines(plan: Plan, device_type: str) -> Iterator[str]:
    yield f"scaler = torch.amp.GradScaler({device_type!r})"
    if plan.optimizer == "compiled":
        yield "optimizer.step = compiled_update  # the scaler calls it; create schedulers before this line"


def _divisor(training: TrainingEntry, *, cuts: bool) -> str:
    if cuts and training.accumulate > 1:
        return "(len(batches) * len(cut))"
    return "len(cut)" if cuts else "len(batches)" if training.accumulate > 1 else ""


def _learning(plan: Plan, loss: str, device_type: str, divisor: str) -> Iterator[str]:
    """Yield the lines that add the gradients of a batch or of a part of one."""
    each = f"value = {loss}"
    if plan.autocast:
        yield f"with torch.autocast({device_type!r}, dtype=torch.{plan.autocast}):"
        yield f"    {each}"
    else:
        yield each
    if divisor:
        yield f"value = value / {divisor}"
    yield "scaler.scale(value).backward()" if _scales(plan) else "value.backward()"
    yield "total += value.detach()"
