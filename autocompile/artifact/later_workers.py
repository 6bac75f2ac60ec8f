"""A pass over a DataLoader with another number of workers, which draws random numbers at the same times as before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

from torch.utils.data import DataLoader

from autocompile.core.pipeline import LoaderSetting
from autocompile.workload.capture.loader import twin, twin_over


class LaterWorkers:
    """An iterator over `loader` with another `setting`.

    Torch draws a seed when an iterator is created. Samplers draw with the first batch, or at once if there are workers,
    which load ahead. This iterator does both in the way of the loader's own number of workers. The workers of `setting`
    start with the first batch, and use a separate generator. `begin` creates torch's iterators.
    """

    def __init__(
        self, loader: DataLoader[Any], setting: LoaderSetting, begin: Callable[[DataLoader[Any]], Any]
    ) -> None:
        alone = LoaderSetting(0, 0, pinned=bool(loader.pin_memory))
        self._drawn = begin(twin(loader, alone) if loader.num_workers else loader)
        self._indices: Iterator[Any] = self._drawn._sampler_iter  # noqa: SLF001
        if loader.num_workers:
            self._indices = chain(list(islice(self._indices, 1)), self._indices)
        self._loader, self._setting, self._begin = loader, setting, begin
        self._batches: Iterator[Any] | None = None

    def __iter__(self) -> LaterWorkers:
        return self

    def __len__(self) -> int:
        return len(self._drawn)

    def __next__(self) -> Any:
        if self._batches is None:
            made = twin_over(self._loader, self._setting, self._indices, self._drawn._base_seed)  # noqa: SLF001
            if made.num_workers:  # without workers, torch does not accept a timeout
                made.timeout = self._loader.timeout
            self._batches = self._begin(made)
        return next(self._batches)
