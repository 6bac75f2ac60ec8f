"""Twins of a DataLoader with other settings.

The user's own loader is never iterated over, and no worker process stays alive afterwards.
"""

from __future__ import annotations

import contextlib
import random
import time
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from autocompile.core.pipeline import LoaderSetting, LoaderTiming
from autocompile.host import usable_cores

_TORCHS_PREFETCH = 2
_MORE_PREFETCH = 4
_MOST_WORKERS = 8
# A worker that returns nothing for this many seconds is considered to hang.
_HANGS_AFTER_S = 15.0


def has_a_twin(inputs: object) -> bool:
    """Return whether it is a DataLoader that iterates as torch's own class does."""
    return isinstance(inputs, DataLoader) and type(inputs).__iter__ is DataLoader.__iter__


def setting_of(loader: DataLoader[Any]) -> LoaderSetting:
    """Return the user's setting."""
    prefetch = (loader.prefetch_factor or _TORCHS_PREFETCH) if loader.num_workers else 0
    return LoaderSetting(workers=loader.num_workers, prefetch=prefetch, pinned=bool(loader.pin_memory))


def other_settings(own: LoaderSetting) -> list[LoaderSetting]:
    """Return settings that may be faster.

    They have other numbers of workers, up to the usable cores, more prefetching, and pinned memory if there is a GPU.
    """
    pins = torch.cuda.is_available()
    cores = min(usable_cores(), _MOST_WORKERS)
    counts = sorted({0, 1, 2, cores} & set(range(cores + 1)))
    settings = [LoaderSetting(n, _TORCHS_PREFETCH if n else 0, pinned=pins) for n in counts]
    settings.append(LoaderSetting(cores, _MORE_PREFETCH, pinned=pins))
    return [setting for setting in settings if setting != own]


def twin(loader: DataLoader[Any], setting: LoaderSetting) -> DataLoader[Any]:
    """Return a loader over the same data in the same batches with another setting.

    Its workers end with its iterator.
    """
    return _made(loader, setting, generator=loader.generator, **_batching(loader))


def twin_over(loader: DataLoader[Any], setting: LoaderSetting, indices: Iterable[Any], seed: int) -> DataLoader[Any]:
    """Return a twin that loads these `indices`, which were drawn from the loader's sampler.

    It draws no numbers from torch's generator.
    """
    batching = {"batch_sampler": indices} if loader.batch_sampler is not None else _one_by_one(indices)
    return _made(loader, setting, generator=torch.Generator().manual_seed(seed), **batching)


def _made(loader: DataLoader[Any], setting: LoaderSetting, **keywords: Any) -> DataLoader[Any]:
    keywords |= {
        "collate_fn": loader.collate_fn,
        "num_workers": setting.workers,
        "pin_memory": setting.pinned,
        "worker_init_fn": loader.worker_init_fn,
    }
    if setting.workers:
        keywords["prefetch_factor"] = setting.prefetch
        keywords["timeout"] = loader.timeout or _HANGS_AFTER_S
        keywords["multiprocessing_context"] = loader.multiprocessing_context
    return DataLoader(loader.dataset, **keywords)


def _one_by_one(sampler: Any) -> dict[str, Any]:
    return {"batch_size": None, "sampler": sampler}


def _batching(loader: DataLoader[Any]) -> dict[str, Any]:
    if loader.batch_sampler is None:
        return _one_by_one(None if isinstance(loader.dataset, IterableDataset) else loader.sampler)
    if isinstance(loader.dataset, IterableDataset):
        return {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
    return {"batch_sampler": loader.batch_sampler}


@contextlib.contextmanager
def _kept_generators(stream: Any) -> Iterator[None]:
    """Restore the generators that a loader and its dataset use besides torch's: Python's, NumPy's and its own."""
    places = (
        stream,
        getattr(stream, "sampler", None),
        getattr(getattr(stream, "batch_sampler", None), "sampler", None),
    )
    given = {id(found): found for place in places if (found := getattr(place, "generator", None)) is not None}
    before = [(generator, generator.get_state()) for generator in given.values() if hasattr(generator, "get_state")]
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002  users draw from it
    try:
        yield
    finally:
        for generator, state in before:
            generator.set_state(state)
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002


@contextlib.contextmanager
def iterating(stream: Any) -> Iterator[Iterator[Any]]:
    """Iterate over `stream`. Afterwards no worker is left, and the random state is as it was."""
    with torch.random.fork_rng(devices=[]), _kept_generators(stream), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that pinning needs a GPU, or that there are more workers than cores
        iterator = iter(stream)
        try:
            yield iterator
        finally:
            end = getattr(iterator, "_shutdown_workers", None)
            if end is not None:
                end()


def timed(loader: DataLoader[Any], setting: LoaderSetting, seconds: float) -> LoaderTiming | None:
    """Time `setting` for this many seconds. Return None if it fails here or gives too few batches."""
    stamps: list[float] = []
    try:
        with iterating(twin(loader, setting)) as batches:
            deadline = time.perf_counter() + seconds
            for _batch in batches:
                stamps.append(time.perf_counter())
                if stamps[-1] > deadline:
                    break
    except Exception:  # a setting that fails with the user's dataset cannot be recommended
        return None
    return timing_of(setting, stamps) if len(stamps) > 1 else None


def timing_of(setting: LoaderSetting, stamps: list[float]) -> LoaderTiming:
    """Return the timing from the times at which batches came.

    The first time includes the start of the workers. Batches that were loaded ahead while the workers started are left
    out too, if enough batches follow.
    """
    ahead = min(setting.workers * setting.prefetch, len(stamps) // 2)
    span = stamps[-1] - stamps[ahead]
    count = len(stamps) - 1 - ahead
    return LoaderTiming(setting=setting, batch_ms=span / count * 1e3, batches=count)
