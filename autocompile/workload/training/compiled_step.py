"""An optimizer's step as one compiled program, on the optimizer itself: its groups and its state stay as they are.

What is compiled is specialised on each number in the groups: a learning rate that a schedule changes would compile
anew at every step (torch 2.13: a program for each value). So the program is given the rate as a tensor, for the length
of a call; the group has its own number before and after it. A state that the first step makes would be a second
program; so it is made ahead of that step, as torch makes it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Optimizer

COMPILED = "compiled"
Update = Callable[[Optimizer], None]
# Makes of an update a program that does the same in one.
Compile = Callable[[Update], Update]
# Settings of a group that each have a program of their own; with more, what changes is a schedule's.
_MOST_SETTINGS = 4
# With these the update is written in operators that a compiler fuses over all parameters, counters included.
_TRACED = {"fused": False, "foreach": True, "capturable": True}


def problem_of_compiling(kind: type[Optimizer], settings: list[dict[str, Any]]) -> str:
    """Why a step of such an optimizer, with groups of these settings, is not compiled, or ""."""
    owner = _owner(kind)
    if not owner.__module__.startswith("torch.optim.") or not hasattr(kind, "_init_group"):
        return f"the step of {kind.__name__} is not one of torch's own optimizers'"
    if any(own.get("differentiable") for own in settings):
        return f"{kind.__name__} is differentiable, so its step is recorded for gradients"
    if issubclass(kind, SGD) and any(own["momentum"] and own["dampening"] for own in settings):
        return "with dampening the first step of SGD is another one than all that follow"
    return ""


class CompiledStep:
    """Does an optimizer's steps, compiled at the first.

    `keeps_state`: whether state that is put back to how it was before the first step is made again on the same memory,
    as trials put it back over and over, and what is compiled belongs to a memory.
    """

    def __init__(self, optimizer: Optimizer, compiled: Compile, *, keeps_state: bool = False) -> None:
        self._optimizer, self._keeps_state = optimizer, keeps_state
        self._plain = _plain_update(type(optimizer))
        self._program = compiled(self._plain)
        self._rates: list[torch.Tensor] = []
        self._made: dict[nn.Parameter, dict[str, Any]] = {}
        self._stateless: set[nn.Parameter] = set()
        self._settings: list[object] = []

    def __call__(self) -> None:
        """Do one. Raises what the compiler raises, before anything is changed but state that was made."""
        self._make_state()
        with torch.no_grad(), self._traced():
            self._program(self._optimizer)

    def as_it_is(self) -> None:
        """Do one without the compiler, in the optimizer's own implementation."""
        with torch.no_grad():
            self._plain(self._optimizer)

    @property
    def is_for_many_settings(self) -> bool:
        """Whether the settings as they are now would make one program too many: a schedule changes them."""
        own = [_numbers(group) for group in self._optimizer.param_groups]
        if own in self._settings:
            return False
        if len(self._settings) >= _MOST_SETTINGS:
            return True
        self._settings.append(own)
        return False

    @contextmanager
    def _traced(self) -> Iterator[None]:
        """The groups as the program wants them."""
        groups = self._optimizer.param_groups
        while len(self._rates) < len(groups):
            self._rates.append(torch.tensor(0.0, dtype=torch.float64))
        given = []
        for group, rate in zip(groups, self._rates, strict=False):
            wanted: dict[str, Any] = {name: value for name, value in _TRACED.items() if name in group}
            if not isinstance(group["lr"], torch.Tensor):
                wanted["lr"] = rate.fill_(group["lr"])
            given.append({name: group[name] for name in wanted})
            group.update(wanted)
        try:
            yield
        finally:
            for group, own in zip(groups, given, strict=True):
                group.update(own)

    def _make_state(self) -> None:
        """What the first step of a parameter would make, made now."""
        state = self._optimizer.state
        for group in self._optimizer.param_groups:
            new = [p for p in group["params"] if p.grad is not None and p not in self._stateless and not state.get(p)]
            if not new:
                continue
            lists = len(inspect.signature(self._optimizer._init_group).parameters) - 1  # type: ignore[attr-defined]  # noqa: SLF001
            self._optimizer._init_group(group, *([] for _ in range(lists)))  # type: ignore[attr-defined]  # noqa: SLF001
            for parameter in new:
                self._keep(parameter, group)

    def _keep(self, parameter: nn.Parameter, group: dict[str, Any]) -> None:
        state = self._optimizer.state
        if isinstance(self._optimizer, SGD) and group["momentum"]:  # which its first step makes of the gradient
            state[parameter] = {"momentum_buffer": torch.zeros_like(parameter)}
        if not state.get(parameter):
            self._stateless.add(parameter)
        elif self._keeps_state:
            known = self._made.setdefault(parameter, state[parameter])
            if known is not state[parameter]:
                state[parameter] = _put_into(known, state[parameter])


def put_compiled(optimizer: Optimizer, step: Callable[[], None]) -> None:
    """Have the optimizer do its steps so, whoever calls it: hooks, schedulers and scalers find it as it was."""

    def update(own: Any, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        own._opt_called = True  # noqa: SLF001  as a scheduler notes it, to tell who comes first
        step()
        return loss

    hooked = Optimizer.profile_hook_step(update)
    hooked._wrapped_by_lr_sched = True  # type: ignore[attr-defined]  # noqa: SLF001
    optimizer.step = MethodType(hooked, optimizer)  # type: ignore[method-assign]


def _owner(kind: type[Optimizer]) -> type:
    return next(base for base in kind.__mro__ if "step" in vars(base))


def _plain_update(kind: type[Optimizer]) -> Update:
    """The class's own step, without hooks and without what sets gradients off: a compiler breaks at either."""
    step = inspect.unwrap(vars(_owner(kind))["step"])

    def update(optimizer: Optimizer) -> None:
        step(optimizer)

    return update


def _numbers(group: dict[str, Any]) -> dict[str, Any]:
    kinds = (bool, int, float, tuple)
    return {name: value for name, value in group.items() if name != "lr" and isinstance(value, kinds)}


def _put_into(known: dict[str, Any], fresh: dict[str, Any]) -> dict[str, Any]:
    """The state that was there once, with what it is to hold now."""
    for name, value in fresh.items():
        if isinstance(value, torch.Tensor) and isinstance(known.get(name), torch.Tensor):
            known[name].copy_(value)
        else:
            known[name] = value
    return known
