"""Try a DataLoader with other settings while the model trains, and measure how long a step takes with each.

Workers compete with the model for the cores, so the speed of a loader alone is not enough to choose its settings.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader

from autocompile.core.job import LoaderTask
from autocompile.core.pipeline import Loaders, LoaderSetting, LoaderTrial
from autocompile.core.plan import Plan
from autocompile.runtime.building import built
from autocompile.trial.clock.devices import DEVICES
from autocompile.trial.phases import Phases
from autocompile.workload.capture.kept_loader import kept_loader
from autocompile.workload.capture.loader import iterating, other_settings, setting_of, twin
from autocompile.workload.samples import Sample, device_of
from autocompile.workload.spool import unspool_step
from autocompile.workload.step import Step

_FEWEST_STEPS, _ROUNDS = 4, 2


def try_loaders(task: LoaderTask, phases: Phases) -> Loaders:
    """Train in eager on the spooled batches for `task.seconds`, loading for each step as many batches as it consumes.

    The loader is first tried as given, then with the most workers, then with other settings until the time is up.
    Raises what the loader raises with its given settings.
    """
    with phases("load"):
        given, samples = unspool_step(task.workload)
        step = built(given, Plan())
        loader = kept_loader(Path(task.workload.directory))
        batches = task.workload.training.accumulate if task.workload.training else 1
    with phases("loader"), step.preserved():
        training = _Training(step, samples[0], batches)
        training.step()
        return _compared(loader, training, task.seconds)


def _compared(loader: DataLoader[Any], training: _Training, seconds: float) -> Loaders:
    """Try all settings in turn, then again, so that a temporary disturbance makes no setting look slow."""
    own = setting_of(loader)
    others = sorted(other_settings(own), key=lambda setting: (setting.prefetch, -setting.workers))
    ends, each_s = time.perf_counter() + seconds, seconds / _ROUNDS / (1 + len(others))
    tries = [_tried(loader, own, training, each_s)]
    for number, setting in enumerate([*others, *([own, *others] * (_ROUNDS - 1))]):
        if number and time.perf_counter() + each_s / 2 > ends:
            break
        with contextlib.suppress(Exception):  # a setting that fails with the user's dataset is not recommended
            tries.append(_tried(loader, setting, training, each_s))
    best: dict[LoaderSetting, LoaderTrial] = {}
    for one in sorted(tries, key=lambda trial: trial.step_ms):
        best.setdefault(one.setting, one)
    first = best.pop(own)
    return Loaders(first, tuple(sorted(best.values(), key=lambda one: (one.setting.workers, one.setting.prefetch))))


class _Training:
    """Steps on one sample. Each step first waits for the batches it consumes and starts copying them to its device."""

    def __init__(self, step: Step, sample: Sample, batches: int) -> None:
        self._step, self._sample, self._batches = step, sample, batches
        self._device = device_of(sample)

    def step(self) -> None:
        """Run one step and wait until the device has finished it."""
        self._step.run(self._sample)
        DEVICES[self._step.device_type].synchronize()

    def waits(self, source: Iterator[Any]) -> Iterator[float]:
        """Run steps until there are no more batches, and yield the seconds that each step waited."""
        while True:
            began = time.perf_counter()
            batches = list(islice(source, self._batches))
            waited = time.perf_counter() - began
            if len(batches) < self._batches:
                return
            sent = pytree.tree_map(self._sent, batches)
            self.step()
            del sent
            yield waited

    def _sent(self, leaf: Any) -> Any:
        return leaf.to(self._device, non_blocking=True) if isinstance(leaf, torch.Tensor) else leaf


def _tried(loader: DataLoader[Any], setting: LoaderSetting, training: _Training, seconds: float) -> LoaderTrial:
    """Try one setting for `seconds`, and for a few steps at least.

    The first step, which includes the start of the workers, is reported separately. Batches that were prefetched
    during it are left out too, if enough batches follow.
    """
    waited: list[float] = []
    stamps: list[float] = []
    began = time.perf_counter()
    with iterating(twin(loader, setting)) as source:
        for wait in training.waits(source):
            waited.append(wait)
            stamps.append(time.perf_counter())
            if stamps[-1] - began > seconds and len(stamps) > _FEWEST_STEPS:
                break
    if len(stamps) < 2:
        raise ValueError("the DataLoader gives too few batches for two steps")
    ahead = min(setting.workers * setting.prefetch, len(stamps) // 2)
    steps = len(stamps) - 1 - ahead
    return LoaderTrial(
        setting=setting,
        step_ms=(stamps[-1] - stamps[ahead]) / steps * 1e3,
        waiting_ms=sum(waited[ahead + 1 :]) / steps * 1e3,
        start_ms=waited[0] * 1e3,
        steps=steps,
    )
