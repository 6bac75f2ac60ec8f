"""Applies a recommendation to an unchanged script: the artifact serves the calls of its model."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

import torch
from torch import nn

from autocompile.artifact.fitting import AppliedScript, Fitting
from autocompile.artifact.integrity import open_artifact
from autocompile.artifact.load import load
from autocompile.artifact.module import CompiledModule
from autocompile.artifact.options import check_served
from autocompile.core.service import Service
from autocompile.workload.outermost import LOOK_INSIDE, only_inner_calls_count, outermost_calls, uncompiled
from autocompile.workload.spans import Spans

_LEARNS = "gradients were enabled; put torch.no_grad() around them"
_AUTOCAST = "autocast was enabled; remove it, because the recommendation has its own precision"


class ServedScript(AppliedScript["AppliedModule"]):
    """Serves those calls of a script's modules that call the model that was tuned.

    A call with gradients or autocast enabled is not served, because the artifact computes no gradients, and has its own
    precision. Raises InvalidRecommendation and InvalidArtifact as `load` does.
    """

    def __init__(self, directory: Path) -> None:
        self._manifest = open_artifact(directory, None).manifest
        check_served(self._manifest)
        self._fitting = Fitting(self._manifest, lambda module: AppliedModule(directory, module))

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Serve calls within the context."""
        with outermost_calls(self._called):
            yield

    def _called(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], made: Callable[..., Any]
    ) -> Any:
        applied = self._fitting(uncompiled(module))
        if applied is None:
            return LOOK_INSIDE if only_inner_calls_count(args, kwargs) else made(module, *args, **kwargs)
        reason = self._reason_against()
        if reason:
            applied.left[reason] += 1
            return made(module, *args, **kwargs)
        return applied(args, kwargs)

    def _reason_against(self) -> str:
        """Return why this call must not be served, or ""."""
        return _LEARNS if torch.is_grad_enabled() else under_autocast(self._manifest.device_type)


def under_autocast(device_type: str) -> str:
    """Return why a call must not be served if autocast is enabled, or ""."""
    return _AUTOCAST if torch.is_autocast_enabled(device_type) else ""


class AppliedModule:
    """The recommendation, applied to one module, and loaded at the first call that it serves.

    `left` counts, by reason, the calls that were not served. `name`: the module's name, by default that of its class.
    """

    def __init__(self, directory: Path, module: nn.Module, name: str = "") -> None:
        self._directory, self._name = directory, name or type(module).__name__
        self._module: nn.Module | None = module
        self._loaded: CompiledModule | None = None
        self._lock = RLock()
        self.left: Counter[str] = Counter()
        self._told: list[str] = []
        self._spans = Spans()

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        began = self._spans.begin()
        loaded = self._load() if self._loaded is None else self._loaded
        output = loaded(*args, **kwargs)
        self._spans.end(began)
        return output

    def service(self) -> Service:
        """Return the statistics so far."""
        status = None if self._loaded is None else self._loaded.status
        mean_s = self._spans.mean_s
        return Service(
            module=self._name,
            label=status.label if status else "",
            calls=status.calls if status else {},
            first_s=self._spans.first_s,
            mean_ms=None if mean_s is None else 1e3 * mean_s,
            left={**self.left, **({one.reason: one.calls for one in status.fallbacks} if status else {})},
            notes=(*self._told, *(status.notes if status else ())),
        )

    def _load(self) -> CompiledModule:
        """Load the artifact. Its warnings are reported at the end, with the statistics."""
        with self._lock:
            if self._loaded is None:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always", RuntimeWarning)
                    self._loaded = load(self._directory, self._module)
                self._told = list(dict.fromkeys(str(one.message) for one in caught))
                self._module = None
            return self._loaded
