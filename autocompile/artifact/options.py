"""What `load` was asked for: checked, and which configuration it prefers for so many calls. No torch."""

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
    """The options of `autocompile.load`, which says what they mean. Raises InvalidValue."""

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
    """Raises InvalidRecommendation where there is nothing to serve, as it was tuned for training."""
    if manifest.training:
        remedy = "call autocompile.prepare(path, model, optimizer, loss=loss)"
        raise InvalidRecommendation("it is for training, and nothing is loaded for that", where="load", remedy=remedy)


def check_trained(manifest: Manifest) -> TrainingEntry:
    """How the model was trained. Raises InvalidRecommendation where it was tuned for calls."""
    if manifest.training is None:
        remedy = "call autocompile.load(path, model)"
        raise InvalidRecommendation("it is for calls of a model, and not for training", where="prepare", remedy=remedy)
    return manifest.training


def check_model(manifest: Manifest, model: Any) -> None:
    """Raises UsageError if there is no model where the artifact needs one, or what there is cannot be called."""
    check_served(manifest)
    if callable(model):
        return
    stands_alone = manifest.serving.start == "load" and not any(program.needs_model for program in manifest.programs)
    if model is None and stands_alone:
        return
    if model is None:
        remedy = "call load(path, model): the artifact holds how to run it, and not its weights"
        raise UsageError("the model is missing", where="load", remedy=remedy)
    remedy = f"give the model that was tuned{', or none' if stands_alone else ''}"
    raise UsageError(f"a {type(model).__name__} cannot be called", where="load", remedy=remedy)


def preferred(manifest: Manifest, calls: int | None) -> Served | None:
    """What the verdict prefers to the artifact itself for so many calls; None if nothing."""
    if calls is None or not manifest.served:
        return None
    work = calls * manifest.batch_factor
    if not manifest.envelope:
        best = min(manifest.served, key=lambda one: one.startup_s + work * one.latency_s)
        return None if best.plan == manifest.plan else best
    label = at_calls(manifest.envelope, work).label
    return next((one for one in manifest.served if one.label == label and one.plan != manifest.plan), None)
