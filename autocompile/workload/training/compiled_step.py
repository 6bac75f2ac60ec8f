"""Compile an optimizer's step to one program, in the optimizer itself: its groups and its state stay as they are.

A compiled program is specialised on each number in the groups. A learning rate that a schedule changes would recompile
at every step (torch 2.13: one program per value). Therefore the program gets the rate as a tensor during a call; before
and after it, the group holds its own number. State that the first step creates would require a second program.
Therefore it is created before that step, in the same way as torch creates it.
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
# Compiles an update to one program that does the same.
Compile = Callable[[Update], Update]
# The maximum number of compiled settings. If they change more often, a schedule changes them.
_MOST_SETTINGS = 4
# With these flags, the update uses operators that a compiler fuses over all parameters, including step counters.
_TRACED = {"fused": False, "foreach": True, "capturable": True}


def problem_of_compiling(kind: type[Optimizer], settings: list[dict[str, Any]]) -> str:
    """Return why the step of such an optimizer, with groups of these settings, cannot be compiled, or ""."""
    owner = _owner(kind)
    if not owner.__module__.startswith("torch.optim.") or not hasattr(kind, "_init_group"):
        return f"the step of {kind.__name__} is not one of torch's own that can be compiled"
    if any(own.get("differentiable") for own in settings):
        return f"{kind.__name__} is differentiable, so its step is recorded for gradients"
    if issubclass(kind, SGD) and any(own["momentum"] and own["dampening"] for own in settings):
        return "with dampening, the first step of SGD differs from all later steps"
    return ""


class CompiledStep:
    """Does an optimizer's steps with a program that the first step compiles.

    With `keeps_state`, state is created in the same memory again after a restore to the time before the first step.
    Trials restore it repeatedly, and compiled programs may depend on memory addresses.
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
        """Do one step. If the compiler raises, nothing has changed except that state was created."""
        self._make_state()
        with torch.no_grad(), self._traced():
            self._program(self._optimizer)

    def as_it_is(self) -> None:
        """Do one step without the compiler, in the optimizer's own implementation."""
        with torch.no_grad():
            self._plain(self._optimizer)

    @property
    def is_for_many_settings(self) -> bool:
        """Whether the current settings would require one program too many, because a schedule changes them."""
        own = [_numbers(group) for group in self._optimizer.param_groups]
        if own in self._settings:
            return False
        if len(self._settings) >= _MOST_SETTINGS:
            return True
        self._settings.append(own)
        return False

    @contextmanager
    def _traced(self) -> Iterator[None]:
        """Give the groups the values that the program needs."""
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
        """Create now the state that a parameter's first step would create."""
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
        if isinstance(self._optimizer, SGD) and group["momentum"]:  # SGD's first step makes it of the gradient
            state[parameter] = {"momentum_buffer": torch.zeros_like(parameter)}
        if not state.get(parameter):
            self._stateless.add(parameter)
        elif self._keeps_state:
            known = self._made.setdefault(parameter, state[parameter])
            if known is not state[parameter]:
                state[parameter] = _put_into(known, state[parameter])


def put_compiled(optimizer: Optimizer, step: Callable[[], None]) -> None:
    """Make the optimizer do its steps in this way. Hooks, schedulers and scalers continue to work."""

    def update(own: Any, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        own._opt_called = True  # noqa: SLF001  a scheduler checks the order of calls by it
        step()
        return loss

    hooked = Optimizer.profile_hook_step(update)
    hooked._wrapped_by_lr_sched = True  # type: ignore[attr-defined]  # noqa: SLF001
    optimizer.step = MethodType(hooked, optimizer)  # type: ignore[method-assign]


def _owner(kind: type[Optimizer]) -> type:
    return next(base for base in kind.__mro__ if "step" in vars(base))


def _plain_update(kind: type[Optimizer]) -> Update:
    """Return the class's own step without hooks and without no_grad, because both cause graph breaks."""
    step = inspect.unwrap(vars(_owner(kind))["step"])

    def update(optimizer: Optimizer) -> None:
        step(optimizer)

    return update


def _numbers(group: dict[str, Any]) -> dict[str, Any]:
    kinds = (bool, int, float, tuple)
    return {name: value for name, value in group.items() if name != "lr" and isinstance(value, kinds)}


def _put_into(known: dict[str, Any], fresh: dict[str, Any]) -> dict[str, Any]:
    """Write new state into the memory of the old one."""
    for name, value in fresh.items():
        if isinstance(value, torch.Tensor) and isinstance(known.get(name), torch.Tensor):
            known[name].copy_(value)
        else:
            known[name] = value
    return known
