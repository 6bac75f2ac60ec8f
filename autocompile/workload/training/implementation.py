"""An optimizer's implementation, changed in the optimizer itself: its state, its groups and its hooks stay."""

from __future__ import annotations

from torch.optim import Optimizer

from autocompile.core.errors import InvalidWorkload
from autocompile.workload.training.recipe import Parameters, overridden, placed, stateless_recipe_of

_OTHER = {"foreach": "fused", "fused": "foreach"}


def problem_of(optimizer: Optimizer, parameters: Parameters, name: str) -> str:
    """Why an optimizer of these parameters has no implementation of this name, or "".

    Raises InvalidWorkload as `recipe_of` does.
    """
    recipe = stateless_recipe_of(optimizer, parameters)
    try:
        variant = {"": lambda: recipe, "foreach": recipe.foreach, "fused": recipe.fused}[name]()
        variant.check(parameters)
    except InvalidWorkload as fault:
        return fault.fault
    return ""


def put_on(optimizer: Optimizer, name: str) -> None:
    """Have it work by the implementation of this name, or by its own where that is "".

    Its state is laid out as its parameters are now, and its counters lie where the implementation reads them.
    """
    for group in optimizer.param_groups:
        if name:
            group.update(overridden(group, {name: True, _OTHER[name]: False}))
        for parameter in group["params"]:
            held = optimizer.state.get(parameter, {})
            held.update({key: placed(key, value, parameter, group) for key, value in held.items()})
    # As at the end of load_state_dict: what its class keeps beside is made to fit.
    optimizer.__setstate__({"state": optimizer.state, "param_groups": optimizer.param_groups})
