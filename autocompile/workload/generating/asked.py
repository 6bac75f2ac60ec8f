"""Recognize a function that generates text, such as `model.generate`, as a model whose decode step can be tuned."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from autocompile.core.errors import InvalidWorkload
from autocompile.workload.generating.generations import Generations
from autocompile.workload.generating.not_tunable import NotTunable
from autocompile.workload.generating.replacing import GENERATES
from autocompile.workload.outermost import outermost_calls
from autocompile.workload.samples import as_samples

if TYPE_CHECKING:  # imports transformers
    from autocompile.workload.generating.generation import Generation

# The maximum number of calls to observe.
_CALLS = 4


def generation_by(function: Any, inputs: Any) -> Generation | None:
    """Return what `function` generates with transformers' `generate` of one model, or None if it does not.

    A function that can reach a model which generates (as its object, in its closure, or among the globals that it
    names) is called with some of the inputs to find out, without gradients. Raises InvalidWorkload for a model whose
    decode step cannot be tuned.
    """
    if GENERATES not in sys.modules or isinstance(function, nn.Module) or not any(_generating(function)):
        return None
    seen = Generations()
    if not _called(function, inputs, seen):
        return None
    from autocompile.workload.generating.generation import generation_of  # noqa: PLC0415  imports transformers

    generating = [one for one in seen.seen if one.steps] or seen.seen
    if len(generating) != 1 or not (generating[0].steps or generating[0].left):
        return None
    try:
        return generation_of(generating[0])
    except NotTunable as fault:
        said = f"its decode step cannot be tuned: {fault}"
        raise InvalidWorkload(
            said, where="model", remedy="generate token by token, or tune the model's calls"
        ) from fault


def _called(function: Any, inputs: Any, seen: Generations) -> bool:
    """Return whether the function could be called and each call generated. If not, the caller finds the fault later."""
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    try:
        samples = as_samples(inputs)[:_CALLS]
        with torch.random.fork_rng(devices), torch.no_grad(), seen.open(), outermost_calls(seen.passed):
            called = _as_it_is_now(function)
            for sample in samples:
                called(*sample.args, **sample.kwargs)
                if not seen.seen:
                    return False
    except Exception:  # it may raise anything; it will do so again when it is called as a plain function
        return False
    return True


def _generating(function: Any) -> Iterator[Any]:
    """Yield the models that can generate and that the function can reach itself."""
    mixin = sys.modules[GENERATES].GenerationMixin
    for held in _held_by(function):
        parts = held.modules() if isinstance(held, nn.Module) else [held, *getattr(held, "__dict__", {}).values()]
        yield from (part for part in parts if isinstance(part, mixin))


def _held_by(function: Any) -> Iterator[Any]:
    if isinstance(function, functools.partial):
        yield from _held_by(function.func)
        yield from (*function.args, *function.keywords.values())
        return
    yield getattr(function, "__self__", None)
    plain = getattr(function, "__func__", function)
    if hasattr(plain, "__wrapped__"):
        yield from _held_by(plain.__wrapped__)
    for cell in getattr(plain, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # the cell is still empty
            continue
    code, names = getattr(plain, "__code__", None), getattr(plain, "__globals__", {})
    yield from (names[name] for name in (code.co_names if code else ()) if name in names)
    if code is None:  # a callable object
        yield plain


def _as_it_is_now(function: Any) -> Any:
    """Look up a model's `generate` again, because it was replaced after `function` was bound."""
    if isinstance(function, functools.partial):
        return functools.partial(_as_it_is_now(function.func), *function.args, **function.keywords)
    owner = getattr(function, "__self__", None)
    is_generate = isinstance(owner, nn.Module) and getattr(function, "__name__", "") == "generate"
    return owner.generate if is_generate and owner is not None else function
