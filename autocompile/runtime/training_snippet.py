"""A step of training as plain torch code. No torch."""

from __future__ import annotations

from collections.abc import Iterator

from autocompile.core.plan import Plan
from autocompile.core.workload import TrainingEntry

_OTHER = {"foreach": "fused", "fused": "foreach"}
_LAID_OUT = """
for parameter, state in optimizer.state.items():  # which fused implementations want laid out as the parameters are
    alike = [key for key, value in state.items() if torch.is_tensor(value) and value.shape == parameter.shape]
    state.update({key: torch.empty_like(parameter, dtype=state[key].dtype).copy_(state[key]) for key in alike})
"""
_OWN_LOSS = '''
from collections.abc import Mapping

def loss(model, batch):
    """What the model's output has."""
    if isinstance(batch, Mapping):
        output = model(**batch)
    else:
        output = model(*batch) if isinstance(batch, (tuple, list)) else model(batch)
    return output["loss"] if isinstance(output, Mapping) else output.loss
'''


def step_lines(plan: Plan, loss: str, device_type: str, training: TrainingEntry) -> list[str]:
    """Lines that define `step(*batches)`, where `model`, `optimizer` and what the runtime sets up are there.

    `loss` is the runtime's expression for the loss of a `batch`.
    """
    return [
        *_optimizer_lines(plan.optimizer),
        *(_LAID_OUT.strip().splitlines() if plan.memory_format else ()),
        *(_OWN_LOSS.rstrip().splitlines() if training.own_loss else ()),
        "",
        "def step(*batches):",
        f'    """One step on {_batches(training)}; its loss."""',
        *(f"    {line}" for line in _body(plan, loss, device_type, training)),
    ]


def _batches(training: TrainingEntry) -> str:
    return f"{training.accumulate} batches" if training.accumulate > 1 else "a batch"


def _optimizer_lines(name: str) -> Iterator[str]:
    if not name:
        return
    yield "for group in optimizer.param_groups:"
    yield f"    group.update({name}=True, {_OTHER[name]}=False)"
    yield "optimizer.load_state_dict(optimizer.state_dict())  # its state, where this implementation reads it"


def _body(plan: Plan, loss: str, device_type: str, training: TrainingEntry) -> Iterator[str]:
    yield "model.zero_grad()"
    yield "total = 0.0"
    yield "for batch in batches:"
    if plan.autocast:
        yield f"    with torch.autocast({device_type!r}, dtype=torch.{plan.autocast}):"
        yield f"        value = {loss}"
    else:
        yield f"    value = {loss}"
    if training.accumulate > 1:
        yield "    value = value / len(batches)"
    yield "    value.backward()"
    yield "    total += value.detach()"
    if training.clip_norm is not None:
        yield f"torch.nn.utils.clip_grad_norm_(model.parameters(), {training.clip_norm!r})"
    yield "optimizer.step()"
    yield "return total"
