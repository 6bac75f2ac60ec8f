"""Watch a script's DataLoaders: how long their batches took to come, and which modules got them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from msgspec.structs import replace
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from autocompile.core.pipeline import InputPipeline, LoaderTiming
from autocompile.workload.capture.kept_loader import keep_loader
from autocompile.workload.capture.loader import has_a_twin, setting_of, timed
from autocompile.workload.capture.same_batches import facts_of, why_fixed, why_order_may_differ
from autocompile.workload.capture.stream import tried_otherwise
from autocompile.workload.capture.written import digest_of

_TIMING_S = 2.0
# If loading takes less than this share of the module's time and its own together, other settings gain nothing.
_WORTH_TRYING = 0.05


@dataclass
class Feeding:
    """One loader: its `batches` took `seconds` to come, except the first batch of each pass.

    `calls` is how often each module, by id, was called after one of its batches. For `held`, see `digest_of`.
    """

    loader: DataLoader[Any]
    held: str = ""
    batches: int = 0
    seconds: float = 0.0
    calls: Counter[int] = field(default_factory=Counter)

    def pipeline(self, directory: Path, module_s: float, *, tries: bool, trains: bool) -> InputPipeline | None:
        """Return what is known of the loader, for a module that took `module_s` seconds, or None if there is no timing.

        Other settings are tried if `tries` is set or if the script waits for the loader. The loader of a training is
        written to `directory` instead, and tried while the model trains.
        """
        loader, own = self.loader, setting_of(self.loader)
        timing: LoaderTiming | None = None
        if not own.workers and self.batches:
            timing = LoaderTiming(own, 1e3 * self.seconds / self.batches, self.batches)
        elif has_a_twin(loader):
            timing = timed(loader, own, _TIMING_S)
        if timing is None:
            return None
        known = InputPipeline(type(loader).__name__, timing, loader=facts_of(loader))
        if not has_a_twin(loader):
            why = "it does not iterate like torch's own DataLoader"
            return replace(known, stays=why, fixed=why)
        is_waited_for = self.seconds > _WORTH_TRYING * (module_s + self.seconds)
        fixed = why_fixed(loader, self.held) if is_waited_for else "the script does not wait for it"
        if trains:
            directory.mkdir(parents=True, exist_ok=True)
            return replace(known, stays=keep_loader(loader, directory), fixed=fixed)
        found = tried_otherwise(loader, timing) if tries or is_waited_for else ()
        return replace(known, tried=found, fixed=fixed)


class WatchedLoaders:
    """All DataLoaders that the script uses while it runs."""

    def __init__(self) -> None:
        self._feeding: dict[int, Feeding] = {}
        self._of: WeakKeyDictionary[Any, Feeding] = WeakKeyDictionary()
        self._begun: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
        self._latest: Feeding | None = None

    @contextmanager
    def open(self) -> Iterator[None]:
        """Watch what is loaded within the context."""
        begins, comes = DataLoader._get_iterator, _BaseDataLoaderIter.__next__  # noqa: SLF001

        def get_iterator(loader: DataLoader[Any]) -> Any:
            feeding = self._feeding.get(id(loader))
            if feeding is None:
                held = "" if why_order_may_differ(loader) else digest_of(loader)
                feeding = self._feeding[id(loader)] = Feeding(loader, held)
            iterator = begins(loader)
            self._of[iterator] = feeding
            return iterator

        def next_batch(iterator: Any) -> Any:
            began = time.perf_counter()
            batch = comes(iterator)
            self._came(iterator, time.perf_counter() - began)
            return batch

        DataLoader._get_iterator = get_iterator  # type: ignore[assignment,method-assign]  # noqa: SLF001
        _BaseDataLoaderIter.__next__ = next_batch  # type: ignore[assignment,method-assign]
        try:
            yield
        finally:
            DataLoader._get_iterator = begins  # type: ignore[method-assign]  # noqa: SLF001
            _BaseDataLoaderIter.__next__ = comes  # type: ignore[method-assign]

    def called(self, module: object) -> None:
        """Record that a module is called after the latest batch."""
        if self._latest is not None:
            self._latest.calls[id(module)] += 1

    def feeding(self, module: object) -> Feeding | None:
        """Return the loader whose batches went to a module most often, or None if no batch did."""
        most = max(self._feeding.values(), key=lambda one: one.calls[id(module)], default=None)
        return most if most is not None and most.calls[id(module)] else None

    def _came(self, iterator: Any, seconds: float) -> None:
        self._latest = self._of.get(iterator)
        if self._latest is not None and self._begun.get(iterator):
            self._latest.batches += 1
            self._latest.seconds += seconds
        self._begun[iterator] = True
