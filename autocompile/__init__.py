"""autocompile finds the fastest correct way to run a PyTorch model, by measuring.

    rec = autocompile.optimize(model, inputs, budget="30m")
    rec.save("rec/")
    fast = autocompile.load("rec/", model)
    step = autocompile.prepare("rec/", model, optimizer, loss=loss)  # if training was tuned

Importing this package imports neither torch nor optuna. The first use of one of its names does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autocompile.api import optimize as optimize
    from autocompile.api import profile as profile
    from autocompile.artifact.entry import load as load
    from autocompile.artifact.module import CompiledModule as CompiledModule
    from autocompile.artifact.prepare import prepare as prepare
    from autocompile.artifact.prepared import PreparedStep as PreparedStep
    from autocompile.core import errors as errors
    from autocompile.core.goal import Goal as Goal
    from autocompile.recommendation import Recommendation as Recommendation
    from autocompile.workload.training.training import Training as Training

_HOMES = {
    "optimize": "autocompile.api",
    "profile": "autocompile.api",
    "load": "autocompile.artifact.entry",
    "prepare": "autocompile.artifact.prepare",
    "CompiledModule": "autocompile.artifact.module",
    "PreparedStep": "autocompile.artifact.prepared",
    "Goal": "autocompile.core.goal",
    "Recommendation": "autocompile.recommendation",
    "Training": "autocompile.workload.training.training",
}
__all__ = [
    "CompiledModule",
    "Goal",
    "PreparedStep",
    "Recommendation",
    "Training",
    "errors",
    "load",
    "optimize",
    "prepare",
    "profile",
]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("autocompile.core.errors")
    if name not in _HOMES:
        raise AttributeError(f"module 'autocompile' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
