"""A recommendation, applied in production."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from autocompile.artifact.directory import read_document
from autocompile.core.errors import InvalidRecommendation, UsageError
from autocompile.core.plan import Plan
from autocompile.core.serde import Record
from autocompile.host import cpu_features
from autocompile.workload.build import Built, build
from autocompile.workload.fingerprint import model_fingerprint

OnMismatch = Literal["fallback", "error"]


class Status(Record, frozen=True):
    """How a loaded module serves: its `tier` (`jit` compiles at the first call, `eager` never), and `notes`.

    `label` is the configuration; a note says what differs from where it was tuned, and what follows.
    """

    tier: Literal["jit", "eager"]
    label: str
    notes: tuple[str, ...] = ()


class CompiledModule:
    """Called like the model that it was loaded with; it shares that model's weights.

    `status` tells how it serves. Calls run without gradients. The configuration's number of CPU threads
    is a setting of the whole process, and is applied at loading.
    """

    def __init__(self, call: Built, status: Status) -> None:
        self._call = call
        self._compiling = threading.Lock()
        self._served = status.tier == "eager"
        self.status = status

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._served:
            return self._call(*args, **kwargs)
        # The first call compiles; torch.compile's first calls are not safe in several threads at once.
        with self._compiling:
            output = self._call(*args, **kwargs)
            self._served = True
        return output


def load(path: str | Path, model: Any = None, *, on_mismatch: OnMismatch = "fallback") -> CompiledModule:
    """Apply the configuration of the recommendation at `path` to `model`, which stays as it is.

    A model of another structure or code than was tuned is served eager, with a warning, or raises
    InvalidRecommendation with `on_mismatch="error"`. Another torch or processor is noted in `status`:
    the configuration is right there too, but its figures may differ. Raises InvalidRecommendation if
    there is no readable recommendation, UsageError without a model.
    """
    if on_mismatch not in get_args(OnMismatch):
        raise UsageError(f"{on_mismatch!r} is unknown", where="on_mismatch", remedy="give 'fallback' or 'error'")
    document = read_document(Path(path))
    if not callable(model):
        raise UsageError(
            "the recommendation holds a configuration, not the model", where="load", remedy="call load(path, model)"
        )
    plan, label, notes = document.winner.plan, document.winner.label, []
    if model_fingerprint(model) != document.workload.model_fingerprint:
        fault = "the model has another structure or code than the one that was tuned"
        if on_mismatch == "error":
            raise InvalidRecommendation(fault, where=str(path), remedy="tune it again")
        warnings.warn(f"{fault}; it is served eager; tune it again", RuntimeWarning, stacklevel=2)
        plan, label, notes = Plan(), "eager", [f"{fault}, so it is served eager"]
    if torch.__version__ != document.environment.torch:
        notes.append(f"tuned with torch {document.environment.torch}, loaded with {torch.__version__}")
    if cpu_features() != document.environment.cpu_features:
        notes.append(f"tuned on a processor with {', '.join(document.environment.cpu_features)}; this has others")
    return apply(plan, label, model, document.workload.device.split(":")[0], tuple(notes))


def apply(plan: Plan, label: str, model: Any, device_type: str, notes: tuple[str, ...] = ()) -> CompiledModule:
    """A plan on a model in this process, its threads applied."""
    built = build(model, plan, device_type)
    if built.threads:
        torch.set_num_threads(built.threads)
    return CompiledModule(built, Status(tier="jit" if plan.compiles else "eager", label=label, notes=notes))
