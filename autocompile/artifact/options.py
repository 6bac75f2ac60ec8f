"""Checks the options of `load`, and selects the configuration for a number of calls. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from autocompile.core.envelope import at_calls
from autocompile.core.errors import InvalidRecommendation, InvalidValue, UsageError
from autocompile.core.manifest import Manifest, Served
from autocompile.core.workload import TrainingEntry

OnMismatch = Literal["fallback", "error"]
Fallback = Literal["eager", "jit"]
WeightCheck = Literal["full", "sample"]

_CHOICES = {"on_mismatch": OnMismatch, "fallback": Fallback, "weight_check": WeightCheck}


@dataclass(frozen=True)
class Asked:
    """The options of `autocompile.load`, which documents them. Raises InvalidValue."""

    calls: int | None = None
    on_mismatch: OnMismatch = "fallback"
    fallback: Fallback = "eager"
    digest: str | None = None
    background: bool = False
    weight_check: WeightCheck = "full"

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            given, known = getattr(self, name), get_args(choices)
            if given not in known:
                remedy = f"give {' or '.join(map(repr, known))}"
                raise InvalidValue(f"{given!r} is unknown", where=name, remedy=remedy)
        if self.calls is not None and (not isinstance(self.calls, int) or self.calls < 1):
            raise InvalidValue(f"{self.calls!r} is not a number of calls", where="calls", remedy="give 1 or more")


BY_DEFAULT = Asked()


def check_served(manifest: Manifest) -> None:
    """Raise InvalidRecommendation if training was tuned, so that there is nothing to serve."""
    if manifest.training:
        remedy = "call autocompile.prepare(path, model, optimizer, loss=loss)"
        raise InvalidRecommendation("the recommendation is for training", where="load", remedy=remedy)


def check_trained(manifest: Manifest) -> TrainingEntry:
    """Return how the model was trained. Raises InvalidRecommendation if calls were tuned."""
    if manifest.training is None:
        remedy = "call autocompile.load(path, model)"
        fault = "the recommendation is for calls of a model, not for training"
        raise InvalidRecommendation(fault, where="prepare", remedy=remedy)
    return manifest.training


def check_model(manifest: Manifest, model: Any) -> None:
    """Raise UsageError if the artifact needs a model and none is given, or if the model is not callable."""
    check_served(manifest)
    if callable(model):
        return
    stands_alone = manifest.serving.start == "load" and not any(program.needs_model for program in manifest.programs)
    if model is None and stands_alone:
        return
    if model is None:
        remedy = "call load(path, model): the artifact does not contain the weights"
        raise UsageError("the model is missing", where="load", remedy=remedy)
    remedy = f"give the model that was tuned{', or no model' if stands_alone else ''}"
    raise UsageError(f"a {type(model).__name__} is not callable", where="load", remedy=remedy)


def preferred(manifest: Manifest, calls: int | None) -> Served | None:
    """Return the configuration that is better than the artifact for this number of calls; None if there is none."""
    if calls is None or not manifest.served:
        return None
    work = calls * manifest.batch_factor
    if not manifest.envelope:
        best = min(manifest.served, key=lambda one: one.startup_s + work * one.latency_s)
        return None if best.plan == manifest.plan else best
    label = at_calls(manifest.envelope, work).label
    return next((one for one in manifest.served if one.label == label and one.plan != manifest.plan), None)
