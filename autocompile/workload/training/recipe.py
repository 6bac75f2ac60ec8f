"""Describe an optimizer apart from the tensors that it trains, so that another one can be made for copies of them."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from autocompile.core.errors import InvalidWorkload
from autocompile.workload.training.compiled_step import COMPILED, problem_of_compiling
from autocompile.workload.training.training import MakeOptimizer

_WHERE = "training.optimizer"
Parameters = Mapping[str, nn.Parameter]


@dataclass(frozen=True)
class Group:
    """The names of a group's parameters, and its settings."""

    names: tuple[str, ...]
    settings: dict[str, Any]


@dataclass(frozen=True)
class Recipe:
    """An optimizer's class, groups and state, with parameters by name.

    `make` is the user's function, if there is one. `state` is by parameter, and all of its tensors are copies. An
    optimizer that is `by_closure` has none in its recipe: its past losses do not affect the next closure call, and in
    the middle of its step the state is incomplete.
    """

    kind: type[Optimizer]
    defaults: dict[str, Any]
    groups: tuple[Group, ...]
    state: dict[str, Any]
    make: MakeOptimizer | None = None

    @property
    def by_closure(self) -> bool:
        """Whether its steps call the closure themselves, as often as they need."""
        return calls_its_closure(self.kind)

    def build(self, parameters: Parameters) -> Optimizer:
        """Make the same optimizer for these parameters, with a copy of the state.

        Raises InvalidWorkload if its class refuses the settings, for example on a device without a fused
        implementation.
        """
        optimizer = self._made_by_class(parameters) if self.make is None else self._made_by_user(parameters)
        self.check(parameters)
        for name, held in self.state.items():
            parameter, settings = parameters[name], self._settings_of(name)
            optimizer.state[parameter] = {
                key: placed(key, copy.deepcopy(value), parameter, settings) for key, value in held.items()
            }
        return optimizer

    def foreach(self) -> Recipe:
        """Return it with the implementation that works on many tensors at once.

        Raises InvalidWorkload if there is none.
        """
        return self._with("foreach", "fused")

    def fused(self) -> Recipe:
        """Return it with the implementation that updates in one kernel. Raises InvalidWorkload if there is none.

        Whether the device supports it is checked when the optimizer is built.
        """
        return self._with("fused", "foreach")

    def implemented(self, name: str) -> Recipe:
        """Return it with the implementation `foreach`, `fused` or `compiled`, or unchanged if the name is ""."""
        ways = {"": lambda: self, "foreach": self.foreach, "fused": self.fused, COMPILED: self.compiled}
        return ways[name]()

    def compiled(self) -> Recipe:
        """Return it for a step that is compiled. Raises InvalidWorkload if that is not possible."""
        problem = problem_of_compiling(self.kind, [group.settings for group in self.groups])
        if problem:
            raise InvalidWorkload(problem, where=_WHERE, remedy="leave it as given")
        return replace(self, make=None)

    def in_float64(self) -> Recipe:
        """Return it with the plainest implementation, and with its state in double precision."""
        plain = {"foreach": False, "fused": False}
        wide = pytree.tree_map(widened, (self.defaults, [group.settings for group in self.groups], self.state))
        defaults, settings, state = wide
        groups = tuple(
            Group(group.names, overridden(own, plain)) for group, own in zip(self.groups, settings, strict=True)
        )
        return replace(self, defaults=overridden(defaults, plain), groups=groups, state=state)

    def _with(self, wanted: str, unwanted: str) -> Recipe:
        if any(wanted not in group.settings for group in self.groups):
            raise InvalidWorkload(
                f"{self.kind.__name__} has no {wanted} implementation", where=_WHERE, remedy="leave it as given"
            )
        flags = {wanted: True, unwanted: False}
        groups = tuple(Group(group.names, overridden(group.settings, flags)) for group in self.groups)
        return replace(self, defaults=overridden(self.defaults, flags), groups=groups, make=None)

    def check(self, parameters: Parameters) -> None:
        """Raise InvalidWorkload if the fused implementation is requested but does not support these parameters.

        To find out, this does a step on one number for each device and dtype, because torch reports it no earlier.
        """
        held = [parameters[name] for group in self.groups if group.settings.get("fused") for name in group.names]
        for device, dtype in dict.fromkeys((parameter.device, parameter.dtype) for parameter in held):
            number = nn.Parameter(torch.zeros(1, device=device, dtype=dtype))
            number.grad = torch.zeros_like(number)
            settings = next(group.settings for group in self.groups if group.settings.get("fused"))
            try:
                self._constructed([{**_unnamed(settings), "params": [number]}]).step()
            except Exception as fault:  # from torch or from a user's class
                raise InvalidWorkload(
                    f"{self.kind.__name__} has no fused implementation for {_words(dtype)} on {device}: {_line(fault)}",
                    where=_WHERE,
                    remedy="leave it as given",
                ) from fault

    def _settings_of(self, name: str) -> dict[str, Any]:
        return next(group.settings for group in self.groups if name in group.names)

    def _made_by_class(self, parameters: Parameters) -> Optimizer:
        groups = [
            {**copy.deepcopy(group.settings), "params": [parameters[name] for name in group.names]}
            for group in self.groups
        ]
        try:
            return self._constructed(groups)
        except Exception as fault:  # a user's class may raise anything
            raise InvalidWorkload(
                f"{self.kind.__name__} cannot be made for a copy of the model: {_line(fault)}",
                where=_WHERE,
                remedy="give a function from parameters to an optimizer",
            ) from fault

    def _constructed(self, groups: list[dict[str, Any]]) -> Optimizer:
        accepted = inspect.signature(self.kind).parameters
        defaults = {name: copy.deepcopy(value) for name, value in self.defaults.items() if name in accepted}
        return self.kind(groups, **defaults)

    def _made_by_user(self, parameters: Parameters) -> Optimizer:
        optimizer = _called(self.make, parameters)
        if tuple(_names(optimizer, parameters)) != tuple(group.names for group in self.groups):
            raise InvalidWorkload(
                "made different parameter groups when it was called again",
                where=_WHERE,
                remedy="make the groups from the parameters that it is given",
            )
        for own, group in zip(optimizer.param_groups, self.groups, strict=True):
            own.update(copy.deepcopy(group.settings))
        return optimizer


def recipe_for(optimizer: Optimizer | MakeOptimizer, parameters: Parameters) -> Recipe:
    """Return the recipe of a user's optimizer, or of the optimizer that a user's function makes of all parameters.

    Raises InvalidWorkload if the optimizer holds none of the parameters, or others too; if it keeps state that belongs
    to no parameter; or if the function returns something else.
    """
    if isinstance(optimizer, Optimizer):
        return recipe_of(optimizer, parameters)
    return recipe_of(_called(optimizer, parameters), parameters, make=optimizer)


def recipe_of(optimizer: Optimizer, parameters: Parameters, make: MakeOptimizer | None = None) -> Recipe:
    """Return the recipe of an optimizer as it is now. Raises InvalidWorkload as `recipe_for` does.

    The user's hooks and schedulers are not part of it.
    """
    recipe = stateless_recipe_of(optimizer, parameters)
    if recipe.by_closure:
        return replace(recipe, make=make)
    held = {name: parameter for name, parameter in parameters.items() if parameter in optimizer.state}
    state = {name: copy.deepcopy(optimizer.state[parameter]) for name, parameter in held.items()}
    return replace(recipe, state=state, make=make)


def stateless_recipe_of(optimizer: Optimizer, parameters: Parameters) -> Recipe:
    """Return the recipe without the optimizer's state, which may be as large as the model.

    Raises as `recipe_of` does.
    """
    kind = type(optimizer)
    settings = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    groups = tuple(
        Group(names, copy.deepcopy(own)) for names, own in zip(_names(optimizer, parameters), settings, strict=True)
    )
    held = sum(parameter in optimizer.state for parameter in parameters.values())
    if held < len(optimizer.state):
        raise InvalidWorkload(
            f"{kind.__name__} keeps state that belongs to no parameter, which cannot be copied",
            where=_WHERE,
            remedy="use an optimizer that keeps its state by parameter",
        )
    return Recipe(kind, copy.deepcopy(optimizer.defaults), groups, {})


def widened(leaf: Any) -> Any:
    """Return a copy of a real or complex floating-point tensor in double precision. Return anything else unchanged."""
    if not isinstance(leaf, torch.Tensor) or not (leaf.is_floating_point() or leaf.is_complex()):
        return leaf
    return leaf.detach().to(torch.complex128 if leaf.is_complex() else torch.float64, copy=True)


def _names(optimizer: Optimizer, parameters: Parameters) -> list[tuple[str, ...]]:
    """Return the names of each group's parameters."""
    known = {id(parameter): name for name, parameter in parameters.items()}
    held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    strange = [parameter for parameter in held if id(parameter) not in known]
    if len(strange) == len(held):
        raise InvalidWorkload(
            "holds none of the model's parameters",
            where=_WHERE,
            remedy="make it from the parameters of the model that is given",
        )
    if strange:
        count, first = len(strange), tuple(strange[0].shape)
        raise InvalidWorkload(
            f"holds {count} parameter{'s' * (count > 1)} that the model does not have (first: of shape {first})",
            where=_WHERE,
            remedy="make everything that is trained a part of the model",
        )
    return [tuple(known[id(parameter)] for parameter in group["params"]) for group in optimizer.param_groups]


def _called(make: MakeOptimizer | None, parameters: Parameters) -> Optimizer:
    assert make is not None
    made = make(list(parameters.values()))
    if not isinstance(made, Optimizer):
        raise InvalidWorkload(
            f"the function returns a {type(made).__name__}", where=_WHERE, remedy="return a torch.optim.Optimizer"
        )
    return made


def calls_its_closure(kind: type[Optimizer]) -> bool:
    """Return whether such an optimizer requires a closure. It then calls the closure as often as it needs."""
    return _has_to_be_given_one(kind.step)


@cache  # called at every step, and reading a signature takes longer than some steps' hooks
def _has_to_be_given_one(step: Callable[..., Any]) -> bool:
    closure = inspect.signature(step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def overridden(settings: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with these values, as far as they have such keys."""
    return settings | {name: value for name, value in values.items() if name in settings}


def _unnamed(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: copy.deepcopy(value) for key, value in settings.items() if key != "param_names"}


def _line(fault: Exception) -> str:
    return str(fault).partition("\n")[0] or type(fault).__name__


def _words(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def placed(key: str, value: Any, parameter: nn.Parameter, settings: dict[str, Any]) -> Any:
    """Return state as an implementation needs it.

    Step counters are on the parameter's device if the implementation reads them there, otherwise on the CPU.
    """
    if key != "step" or not isinstance(value, torch.Tensor):
        return laid_out(value, parameter.shape, parameter.stride())
    return value.to(parameter.device if settings.get("fused") or settings.get("capturable") else "cpu")


def laid_out(value: Any, shape: torch.Size, stride: tuple[int, ...]) -> Any:
    """Give state of the parameter's shape the parameter's memory layout.

    Fused implementations iterate over both at once.
    """
    if not isinstance(value, torch.Tensor) or value.shape != shape or value.stride() == stride:
        return value
    return torch.empty_strided(shape, stride, dtype=value.dtype, device=value.device).copy_(value)
