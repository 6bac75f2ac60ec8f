"""Check whether two calls of a model can be compared at all: same outputs, same modules."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from autocompile.core.errors import InvalidWorkload
from autocompile.core.literals import is_literal
from autocompile.trial.check.reference import writes_into_inputs
from autocompile.trial.clock.devices import DEVICES
from autocompile.workload.samples import Sample, named_leaves
from autocompile.workload.step import Step

# The relative difference, over all elements together, that roundings may cause.
_ROUNDED = 1e-3


@dataclass(frozen=True)
class Repeatability:
    """What repeated runs of a step show.

    `deterministic`: two runs from the same RNG state agree exactly. `random`: two runs from different RNG states do not
    agree. `unrepeatable`: two runs from the same state differ by more than roundings. `mutates_inputs`: the step writes
    into its arguments. `replaced`: the path of a child that is another module after a call, or "". `call_s`: the
    seconds of the last call. `opaque_input` and `opaque_output` name an object in the arguments and in the output of a
    call that is neither a tensor nor plain data, or are "".
    """

    deterministic: bool
    random: bool
    unrepeatable: bool
    mutates_inputs: bool
    replaced: str
    call_s: float
    opaque_input: str = ""
    opaque_output: str = ""


def repeatability(step: Step, sample: Sample, seed: int) -> Repeatability:
    """Run a step three times and compare the results.

    Raises InvalidWorkload if there is nothing to compare, or an output that cannot be compared.
    """
    observation = step.observe(sample, seed)
    first = observation.leaves
    children = _children(step)
    again = step.observe(sample, seed).leaves
    replaced = _first_difference(children, _children(step))
    synchronize = DEVICES[step.device_type].synchronize
    synchronize()
    started = time.perf_counter()
    other = step.observe(sample, seed, draws=seed + 1).leaves
    synchronize()
    call_s = time.perf_counter() - started
    _check_outputs(step, first, again)
    deterministic = _same(first, again)
    return Repeatability(
        deterministic=deterministic,
        random=deterministic and not _same(first, other),
        unrepeatable=any(_apart(leaf, again[name]) for name, leaf in first.items() if name in again),
        mutates_inputs=writes_into_inputs(sample, first),
        replaced=replaced,
        call_s=call_s,
        opaque_input="" if step.state.learns else _opaque("input", sample.args) or _opaque("input", sample.kwargs),
        opaque_output=_opaque("output", observation.output),
    )


def check_children(repeats: Repeatability) -> None:
    """Raise InvalidWorkload if a child is another module after every call: its parts could not be told apart."""
    if repeats.replaced:
        raise InvalidWorkload(
            "is another module after every call, so the model's parts cannot be profiled",
            where=f"model.{repeats.replaced}",
            remedy="build the model's children in __init__ and only use them in forward",
        )


def _opaque(where: str, tree: Any) -> str:
    for name, leaf in named_leaves(tree)[0]:
        if not isinstance(leaf, torch.Tensor) and not is_literal(leaf):
            told = f"{leaf}" if isinstance(leaf, float) else f"an object of class {type(leaf).__name__}"
            return f"{where}{name} is {told}"
    return ""


def _check_outputs(step: Step, first: dict[str, Any], again: dict[str, Any]) -> None:
    outputs = {name: leaf for name, leaf in first.items() if name.startswith("output")}
    if not step.state.learns and not any(isinstance(leaf, torch.Tensor) for leaf in outputs.values()):
        kinds = ", ".join(sorted({type(leaf).__name__ for leaf in outputs.values()})) or "nothing"
        raise InvalidWorkload(f"the model returns no tensor ({kinds})", where="model", remedy="return what it computes")
    for name, leaf in outputs.items():
        if not isinstance(leaf, torch.Tensor) and not bool(leaf == again[name]):
            raise InvalidWorkload(
                f"{name} is a {type(leaf).__name__}, which does not compare equal between two calls",
                where="model",
                remedy="return tensors, numbers and text only, or give it an __eq__",
            )


def _children(step: Step) -> dict[str, nn.Module]:
    return dict(step.module.named_modules()) if step.module is not None else {}


def _first_difference(before: dict[str, nn.Module], after: dict[str, nn.Module]) -> str:
    """Return the first module that differs between the first and the second call, as the first may build lazily."""
    return next((path for path in {**before, **after} if before.get(path) is not after.get(path)), "")


def _same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return all(
        torch.equal(torch.nan_to_num(value), torch.nan_to_num(second[name])) if _plain(value) else True
        for name, value in first.items()
    )


def _apart(first: Any, second: Any) -> bool:
    """Whether two tensors differ by more than roundings, such as those from another division of the work."""
    if not _plain(first) or not _plain(second) or first.shape != second.shape:
        return False
    limit = max(_ROUNDED, 50 * torch.finfo(first.dtype).eps) if first.is_floating_point() else _ROUNDED
    off = (first.double() - second.double()).nan_to_num()
    return float(off.norm()) > limit * float(first.double().nan_to_num().norm())


def _plain(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not value.is_complex()
