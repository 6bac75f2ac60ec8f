"""Describe a training for those parts that decide on candidates, and digest what distinguishes it from others."""

from __future__ import annotations

import hashlib

from torch import nn

from autocompile.core.errors import InvalidWorkload
from autocompile.core.workload import TrainingEntry
from autocompile.workload.identity.facts import identity_of
from autocompile.workload.identity.plain import text_of
from autocompile.workload.training.compiled_step import COMPILED, problem_of_compiling
from autocompile.workload.training.recipe import Recipe, recipe_for
from autocompile.workload.training.training import Training, own_loss


def entry_of(module: nn.Module, training: Training) -> tuple[TrainingEntry, str]:
    """Return the entry, and a digest of the loss and of the optimizer, without the optimizer's state.

    Only copies are trained to find out. Raises InvalidWorkload as `recipe_for` does.
    """
    parameters = dict(module.named_parameters())
    recipe = recipe_for(training.optimizer, parameters)
    entry = TrainingEntry(
        optimizer=recipe.kind.__name__,
        accumulate=training.accumulate,
        clip_norm=training.clip_norm,
        own_loss=training.loss is own_loss,
        without=_without(recipe, parameters),
        batch=training.batch if isinstance(training.batch, str) else tuple(dict.fromkeys(training.batch)),
        by_closure=recipe.by_closure,
    )
    settings = [text_of(group.settings) for group in recipe.groups]
    facts = (entry.optimizer, entry.accumulate, entry.clip_norm, text_of(recipe.defaults), settings)
    digest = hashlib.sha256(f"{identity_of(training.loss).digest} {facts}".encode()).hexdigest()
    return entry, digest


def _without(recipe: Recipe, parameters: dict[str, nn.Parameter]) -> dict[str, str]:
    """Return the implementations that are not tried, each with the reason."""
    if recipe.by_closure:
        return dict.fromkeys(
            ("foreach", "fused", COMPILED), f"{recipe.kind.__name__}'s update is not part of a closure call"
        )
    settings = [group.settings for group in recipe.groups]
    on_cpu = all(parameters[name].device.type == "cpu" for group in recipe.groups for name in group.names)
    is_default = not on_cpu and all(own.get("foreach") is None and not own.get("fused") for own in settings)
    reasons = {}
    for name in ("foreach", "fused"):
        if all(own.get(name) for own in settings):
            reasons[name] = f"the optimizer is already {name}"
            continue
        try:
            recipe.implemented(name).check(parameters)
        except InvalidWorkload as fault:
            reasons[name] = fault.fault
    if is_default:
        reasons.setdefault("foreach", "torch uses it by default here")
    held = {name for group in recipe.groups for name in group.names}
    if any(parameter.requires_grad and name not in held for name, parameter in parameters.items()):
        reasons["fp16"] = "a loss scaler does not unscale gradients of parameters that the optimizer does not hold"
    problem = problem_of_compiling(recipe.kind, settings)
    if problem:
        reasons[COMPILED] = problem
    return reasons
