"""Check whether a script's DataLoader gives the same batches with workers. Only then may its setting be changed."""

from __future__ import annotations

import time
from itertools import islice
from typing import Any

import numpy as np
import torch
from msgspec.structs import replace
from torch.utils import _pytree as pytree
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from autocompile.core.pipeline import LoaderFacts, LoaderSetting
from autocompile.workload.capture.loader import iterating, setting_of, twin, twin_over
from autocompile.workload.capture.written import digest_of, random_states

# These samplers draw all of their random numbers with the first batch, also if batches are loaded ahead.
_SAMPLERS = (SequentialSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler, DistributedSampler)
_LEAST_WORKERS, _BATCHES_EACH, _SECONDS = 2, 2, 12.0
_DIFFER = "its dataset gives different batches in worker processes"
_DRAWS = "its dataset draws random numbers, and workers draw different ones"
_WRITES = "its dataset writes to itself, for example to cache or to count, and what workers write is lost"
_HIDDEN = "whether its dataset writes to itself cannot be checked, for example because of open files or its size"
_FEW = f"it gives too few batches to compare, or fewer than {_BATCHES_EACH} for each worker in {_SECONDS:g} s"
_ALONE = LoaderSetting(0, 0, pinned=False)


def facts_of(loader: DataLoader[Any]) -> LoaderFacts:
    """Return the facts by which the loader is recognized later."""
    try:
        samples: int | None = len(loader.dataset)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        samples = None
    return LoaderFacts(
        dataset=type(loader.dataset).__qualname__,
        sampler=type(loader.sampler).__qualname__,
        collate=getattr(loader.collate_fn, "__qualname__", type(loader.collate_fn).__qualname__),
        samples=samples,
        batch=loader.batch_size,
        workers=loader.num_workers,
    )


def why_order_may_differ(loader: DataLoader[Any]) -> str:
    """Return why other workers may change the order of its samples or later random numbers, or ""."""
    if isinstance(loader.dataset, IterableDataset):
        return "its dataset is an IterableDataset, and each worker would iterate over a copy of it"
    batches = loader.batch_sampler
    sampler = batches.sampler if type(batches) is BatchSampler else loader.sampler
    if type(sampler) not in _SAMPLERS or type(batches) not in (BatchSampler, type(None)):
        return "its sampler is not one of torch's, and may draw random numbers for each batch"
    if getattr(sampler, "generator", None) is not None:
        return "its sampler was given a generator, and with workers it draws from it ahead of time"
    if isinstance(sampler, RandomSampler) and sampler.replacement:
        return "its sampler draws with replacement, and therefore draws again while batches are loaded"
    if loader.worker_init_fn is not None:
        return "the script has a function that sets up its workers (worker_init_fn)"
    return "its workers persist" if loader.persistent_workers else ""


def why_fixed(loader: DataLoader[Any], held: str | None = None) -> str:
    """Return why its batches may differ with other settings, or "" if a comparison shows no difference.

    `held` is the `digest_of` the loader before anything was loaded, if that is known.
    """
    why = why_order_may_differ(loader)
    if why:
        return why
    held = digest_of(loader) if held is None else held
    if not held:
        return _HIDDEN
    try:
        return _why_batches_differ(loader, held)
    except Exception as fault:  # whatever a user's dataset raises, here or in another process
        return f"its batches cannot be compared: {type(fault).__name__}"


def _why_batches_differ(loader: DataLoader[Any], held: str) -> str:
    own = setting_of(loader)
    more = replace(own, workers=max(_LEAST_WORKERS, own.workers + 1), prefetch=2)
    indices = _first_indices(loader, _BATCHES_EACH * more.workers)
    loaded = _loaded_here(loader, indices) if len(indices) == _BATCHES_EACH * more.workers else None
    if loaded is None:
        return _FEW
    batches, draws = loaded
    if draws:
        return _DRAWS
    if digest_of(loader) != held:
        return _WRITES
    settings = [own, more] if own.workers else [more]
    return "" if all(_alike(loader, setting, indices, batches) for setting in settings) else _DIFFER


def _first_indices(loader: DataLoader[Any], count: int) -> list[Any]:
    """Return the first indices from its sampler."""
    with iterating(twin(loader, _ALONE)) as batches:
        return list(islice(batches._sampler_iter, count))  # type: ignore[attr-defined]  # noqa: SLF001


def _loaded_here(loader: DataLoader[Any], indices: list[Any]) -> tuple[list[Any], bool] | None:
    """Return these batches, loaded by this process, and whether that drew random numbers; None if it takes too long."""
    until = time.perf_counter() + _SECONDS
    found = []
    with iterating(twin_over(loader, _ALONE, indices, 0)) as batches:
        before = random_states()
        for batch in batches:
            found.append(batch)
            if time.perf_counter() > until and len(found) < len(indices):
                return None
        return found, random_states() != before


def _alike(loader: DataLoader[Any], setting: LoaderSetting, indices: list[Any], batches: list[Any]) -> bool:
    """Return whether workers give these batches."""
    with iterating(twin_over(loader, setting, indices, 0)) as others:
        mine, spec = pytree.tree_flatten(batches)
        theirs, also = pytree.tree_flatten(list(others))
    return spec == also and all(map(_same, mine, theirs))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        alike = one.shape == other.shape and one.dtype == other.dtype
        return alike and torch.allclose(one, other, rtol=0.0, atol=0.0, equal_nan=True)
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return bool(type(one) is type(other) and one == other)
