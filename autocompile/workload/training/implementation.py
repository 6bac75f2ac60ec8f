"""Change an optimizer's implementation in the optimizer itself. Its state, its groups and its hooks stay."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer

from autocompile.core.errors import InvalidWorkload
from autocompile.workload.training.compiled_step import COMPILED
from autocompile.workload.training.recipe import Parameters, laid_out, overridden, placed, stateless_recipe_of

_OTHER = {"foreach": "fused", "fused": "foreach"}


def problem_of(optimizer: Optimizer, parameters: Parameters, name: str) -> str:
    """Return why an optimizer of these parameters has no implementation of this name, or "".

    Raises InvalidWorkload as `recipe_of` does.
    """
    recipe = stateless_recipe_of(optimizer, parameters)
    try:
        recipe.implemented(name).check(parameters)
    except InvalidWorkload as fault:
        return fault.fault
    return ""


def put_on(optimizer: Optimizer, name: str) -> None:
    """Switch the optimizer to the implementation of this name, or to its own if the name is "".

    Its state gets the memory layout that its parameters have now, and its counters move to the device on which the
    implementation reads them.
    """
    name = "" if name == COMPILED else name  # compiling changes the step, not the settings
    for group in optimizer.param_groups:
        if name:
            group.update(overridden(group, {name: True, _OTHER[name]: False}))
        for parameter in group["params"]:
            held = optimizer.state.get(parameter, {})
            held.update({key: placed(key, value, parameter, group) for key, value in held.items()})
    if name and hasattr(optimizer, "_step_supports_amp_scaling"):  # read by GradScaler
        optimizer._step_supports_amp_scaling = name == "fused"  # noqa: SLF001
    # As at the end of load_state_dict, so that the class adapts what else it keeps.
    optimizer.__setstate__({"state": optimizer.state, "param_groups": optimizer.param_groups})


class AsGiven:
    """An optimizer's settings, and its parameters' memory layouts, at the time when this is made.

    State that is saved later is converted back to this form, so that a loop without this library can continue from it.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        groups = optimizer.param_groups
        self._flags = [{name: group[name] for name in _OTHER if name in group} for group in groups]
        parameters = [parameter for group in groups for parameter in group["params"]]
        self._layouts = [(parameter.shape, parameter.stride()) for parameter in parameters]

    def restored(self, saved: dict[str, Any]) -> dict[str, Any]:
        """Convert the result of `state_dict` to what it would be without a plan. The optimizer itself is unchanged."""
        groups = [{**group, **flags} for group, flags in zip(saved["param_groups"], self._flags, strict=False)]
        state = {index: self._laid_out(index, held) for index, held in saved["state"].items()}
        return {**saved, "state": state, "param_groups": [*groups, *saved["param_groups"][len(groups) :]]}

    def _laid_out(self, index: Any, held: Any) -> Any:
        if not isinstance(index, int) or index >= len(self._layouts):
            return held
        shape, stride = self._layouts[index]
        return {key: laid_out(value, shape, stride) for key, value in held.items()}
