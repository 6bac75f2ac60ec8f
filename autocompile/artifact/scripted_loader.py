"""Applies better settings to the DataLoader that feeds the tuned model, in an unchanged script."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils.data import DataLoader

from autocompile.artifact.later_workers import LaterWorkers
from autocompile.core.document import Document
from autocompile.core.pipeline import LoaderSetting
from autocompile.core.profile import Profile
from autocompile.workload.capture.loader import has_a_twin
from autocompile.workload.capture.same_batches import facts_of, why_order_may_differ

# The time that a worker takes to start and stop, if it was not measured; the gain must exceed it by the second factor.
_WORKER_MS, _CLEARLY = 100.0, 2.0


class ServedLoader:
    """Gives the iterators of the script's DataLoader the better setting, if its batches stay the same.

    Order and random numbers do not change, see `LaterWorkers`. A pass that is too short for workers to pay off is not
    changed.
    """

    def __init__(self, document: Document) -> None:
        self._pipeline = document.profile.pipeline
        training = document.workload.training
        found = _better(document.profile, training.accumulate if training else 1)
        self._better, self._gain_ms, self._start_ms = found
        self._passes = self._short = 0

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Apply the setting to passes within the context."""
        if self._better is None or self._pipeline is None or self._pipeline.fixed:
            yield
            return
        better, before = self._better, DataLoader._get_iterator  # noqa: SLF001

        def get_iterator(loader: DataLoader[Any]) -> Any:
            return LaterWorkers(loader, better, before) if self._serves(loader) else before(loader)

        DataLoader._get_iterator = get_iterator  # type: ignore[assignment,method-assign]  # noqa: SLF001
        try:
            yield
        finally:
            DataLoader._get_iterator = before  # type: ignore[method-assign]  # noqa: SLF001

    def lines(self) -> Iterator[str]:
        """Yield a summary."""
        if self._better is None or self._pipeline is None:
            return
        own = f"num_workers={self._pipeline.own.setting.workers}"
        if self._pipeline.fixed:
            yield f"DataLoader: {self._better} was faster, but is not applied: {self._pipeline.fixed}"
        elif self._passes:
            times = f"{self._passes:,} pass{'es' * (self._passes != 1)}"
            yield f"DataLoader with {_told(self._better)} in place of {own}: {times}"
        if self._short:
            times = f"{self._short:,} pass{'es' * (self._short != 1)}"
            yield f"DataLoader unchanged in {times}, too short for starting workers"

    def _serves(self, loader: DataLoader[Any]) -> bool:
        assert self._pipeline is not None
        if not has_a_twin(loader) or facts_of(loader) != self._pipeline.loader or why_order_may_differ(loader):
            return False
        if len(loader) * self._gain_ms < _CLEARLY * self._start_ms:
            self._short += 1
            return False
        self._passes += 1
        return True


def _told(setting: LoaderSetting) -> str:
    return str(setting).replace(", persistent_workers=True", "")


def _better(profile: Profile, accumulate: int) -> tuple[LoaderSetting | None, float, float]:
    """Return the better setting, the milliseconds that it saves per batch, and those that its workers take to start."""
    tried, pipeline = profile.loaders, profile.pipeline
    if tried is not None and tried.own is not None and tried.better is not None:
        gain = (tried.own.step_ms - tried.better.step_ms) / accumulate
        return tried.better.setting, gain, tried.better.start_ms
    latency = profile.baseline_ms.value
    found = pipeline.better(latency) if pipeline is not None else None
    if pipeline is None or found is None:
        return None, 0.0, 0.0
    gain = pipeline.own.step_ms(latency) - found.step_ms(latency)
    return found.setting, gain, _WORKER_MS * found.setting.workers
