"""What `load` was asked for, checked. No torch."""

from __future__ import annotations

from typing import Any, Literal, get_args

from autocompile.core.errors import InvalidValue, UsageError
from autocompile.core.manifest import Manifest

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
