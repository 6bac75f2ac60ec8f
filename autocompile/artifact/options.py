"""What `load` was asked for: checked, and which configuration it prefers for so many calls. No torch."""

from __future__ import annotations

from typing import Any, Literal, get_args

from autocompile.core.envelope import at_calls
from autocompile.core.errors import InvalidValue, UsageError
from autocompile.core.manifest import Manifest, Served

OnMismatch = Literal["fallback", "error"]
Fallback = Literal["eager", "jit"]


def check_model(manifest: Manifest, model: Any) -> None:
    """Raises UsageError if there is no model where the artifact needs one, or what there is cannot be called."""
    if callable(model):
        return
    stands_alone = manifest.serving.start == "load" and not any(program.needs_model for program in manifest.programs)
    if model is None and stands_alone:
        return
    fault = "the model is missing" if model is None else f"a {type(model).__name__} cannot be called"
    remedy = "call load(path, model): the artifact holds how to run it, and not its weights"
    raise UsageError(fault, where="load", remedy=remedy)


def check_options(calls: int | None, on_mismatch: str, fallback: str) -> None:
    """Raises InvalidValue."""
    if on_mismatch not in get_args(OnMismatch):
        raise InvalidValue(f"{on_mismatch!r} is unknown", where="on_mismatch", remedy="give 'fallback' or 'error'")
    if fallback not in get_args(Fallback):
        raise InvalidValue(f"{fallback!r} is unknown", where="fallback", remedy="give 'eager' or 'jit'")
    if calls is not None and (not isinstance(calls, int) or calls < 1):
        raise InvalidValue(f"{calls!r} is not a number of calls", where="calls", remedy="give 1 or more")


def preferred(manifest: Manifest, calls: int | None) -> Served | None:
    """What the verdict prefers to the artifact itself for so many calls; None if nothing."""
    if calls is None or not manifest.served:
        return None
    work = calls * manifest.batch_factor
    if not manifest.envelope:  # packed by a version that kept no verdicts for other numbers of calls
        best = min(manifest.served, key=lambda one: one.startup_s + work * one.latency_s)
        return None if best.plan == manifest.plan else best
    label = at_calls(manifest.envelope, work).label
    return next((one for one in manifest.served if one.label == label and one.plan != manifest.plan), None)
