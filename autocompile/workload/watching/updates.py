"""Time the steps that optimizers do, wherever they are called from."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from autocompile.workload.training.recipe import calls_its_closure


@dataclass
class _Update:
    """The step under way: when it `began`, its wrapped `closure`, and the seconds spent in the closure."""

    began: float = 0.0
    in_closure: float = 0.0
    closure: Callable[[], Any] | None = None


@contextmanager
def timed_updates(
    told: Callable[[Optimizer, float], None], before: Callable[[Optimizer], None] = lambda _optimizer: None
) -> Iterator[None]:
    """Call `told` with each optimizer step and its seconds, without those of a closure, which computes the loss.

    For an optimizer that calls its closure itself, `told` is called for each completed closure call instead, with 0
    seconds, because such a call contains no update. `before` is called when a step begins.
    """
    update = _Update()

    def timed(optimizer: Optimizer, closure: Callable[[], Any]) -> Callable[[], Any]:
        if closure is update.closure:  # the step of a subclass passes it on to the step of its base class
            return closure

        def call() -> Any:
            began = time.perf_counter()
            try:
                made = closure()
            finally:
                update.in_closure += time.perf_counter() - began
            if calls_its_closure(type(optimizer)):
                told(optimizer, 0.0)
            return made

        update.closure, update.began, update.in_closure = call, time.perf_counter(), 0.0
        return call

    def begins(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        before(optimizer)
        own, *given = args
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": timed(optimizer, kwargs["closure"])}
        if given and callable(given[0]):
            return (own, timed(optimizer, given[0]), *given[1:]), kwargs
        update.began, update.in_closure = time.perf_counter(), 0.0
        return None

    def ended(optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        if not calls_its_closure(type(optimizer)):
            told(optimizer, time.perf_counter() - update.began - update.in_closure)

    begun, done = register_optimizer_step_pre_hook(begins), register_optimizer_step_post_hook(ended)
    try:
        yield
    finally:
        begun.remove()
        done.remove()
