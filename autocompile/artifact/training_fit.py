"""Finds out which parts of a recommendation for training fit a model, an optimizer and this machine."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import msgspec
from torch import nn
from torch.optim import Optimizer

from autocompile.artifact.mismatch import Mismatch, mismatches
from autocompile.core.errors import InvalidWorkload
from autocompile.core.manifest import Manifest
from autocompile.core.plan import EAGER, Plan
from autocompile.core.workload import TrainingEntry
from autocompile.workload.training.compiled_step import COMPILED
from autocompile.workload.training.implementation import problem_of

# If one of these differs, the plan is not applied at all, or nothing is compiled.
_NOTHING_FITS, _NOT_COMPILED = frozenset({"model", "device"}), frozenset({"runtime"})
# Differences in the model and the optimizer, as opposed to the machine and the versions.
_OF_THE_USER = frozenset({"model", "figures", "optimizer"})


@dataclass(frozen=True)
class Fit:
    """The plan as it is applied here; why steps are not as recommended (`fallback`, or ""); what else differs.

    `is_same_machine`: whether torch, Python and the kind of machine are the same, so that a packed cache can be used.
    """

    plan: Plan
    fallback: str
    notes: tuple[str, ...]
    is_same_machine: bool


def training_mismatches(manifest: Manifest, model: nn.Module, optimizer: Optimizer) -> tuple[Mismatch, ...]:
    """Return all differences, the most serious first. Raises InvalidWorkload if the optimizer is not of this model."""
    problem = _implementation_problem(manifest, model, optimizer)
    kind = next((parameter.device.type for parameter in model.parameters()), manifest.device_type)
    elsewhere = f"tuned on {manifest.device_type}, but the model is on {kind}"
    return (
        *mismatches(manifest, model),
        *([Mismatch("device", elsewhere)] if kind != manifest.device_type else ()),
        *([Mismatch("optimizer", problem)] if problem else ()),
    )


def _implementation_problem(manifest: Manifest, model: nn.Module, optimizer: Optimizer) -> str:
    try:
        return problem_of(optimizer, dict(model.named_parameters()), manifest.plan.optimizer)
    except InvalidWorkload as fault:
        raise InvalidWorkload(fault.fault, where="optimizer", remedy=fault.remedy) from fault


def fit(manifest: Manifest, found: tuple[Mismatch, ...]) -> Fit:
    """Return what is applied, given the differences."""
    reason = next((one.message for one in found if one.name in _NOTHING_FITS | _NOT_COMPILED), "")
    notes = tuple(one.message for one in found if one.message != reason)
    names = {one.name for one in found}
    return Fit(_plan(manifest.plan, names), reason, notes, names <= _OF_THE_USER)


def _plan(plan: Plan, differing: Collection[str]) -> Plan:
    if not _NOTHING_FITS.isdisjoint(differing):
        return Plan()
    if not _NOT_COMPILED.isdisjoint(differing):
        optimizer = "" if plan.optimizer == COMPILED else plan.optimizer
        plan = msgspec.structs.replace(plan, runtime=EAGER, settings={}, optimizer=optimizer)
    return msgspec.structs.replace(plan, optimizer="") if "optimizer" in differing else plan


def other_figures(entry: TrainingEntry, optimizer: Optimizer, *, own_loss: bool) -> list[str]:
    """Return notes if the optimizer's class or the loss is not the one that was measured."""
    kind = type(optimizer).__name__
    notes = [f"measured with {entry.optimizer}, and this is {kind}"] if kind != entry.optimizer else []
    if entry.own_loss and not own_loss:
        notes.append("measured with the model's own loss, but another loss is given")
    return notes
