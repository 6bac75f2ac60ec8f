"""Take a limited number of inputs from a DataLoader or an iterator, as calls of the model."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from autocompile.core.errors import InvalidWorkload
from autocompile.core.pipeline import InputPipeline, LoaderSetting, LoaderTiming
from autocompile.workload.capture.calls import accepted
from autocompile.workload.capture.loader import (
    has_a_twin,
    iterating,
    other_settings,
    setting_of,
    timed,
    timing_of,
    twin,
)
from autocompile.workload.capture.script import describe_fault
from autocompile.workload.opaque import is_batch, mapped, tensors_in
from autocompile.workload.samples import MAX_SAMPLES

_TAKING_S = 5.0
_TRYING_S = 6.0
_ONE_TRY_S = 1.0
_BATCHES_A_TRY = 4
_DIED = re.compile(r"DataLoader worker.*(exited unexpectedly|is killed by signal)", re.DOTALL)


@dataclass(frozen=True)
class Taken:
    """Calls made from the first batches, how long the batches took to come, and notes for the user.

    `left_out` is the note on which parts of a batch are not arguments, or "".
    """

    calls: list[Any]
    pipeline: InputPipeline
    notes: tuple[str, ...]
    left_out: str


def is_stream(inputs: object) -> bool:
    """Return whether it has to be iterated over: it is neither a sample nor a list of samples."""
    is_sample = isinstance(inputs, torch.Tensor | Mapping | tuple | list | str | bytes)
    if is_sample or not isinstance(inputs, Iterable):
        return False
    return isinstance(inputs, Iterator) or not is_batch(inputs) or _gives_samples(inputs)


def _gives_samples(inputs: Iterable[Any]) -> bool:
    """Return whether an iterable object with tensors gives samples, like a loader, and not its fields or its parts."""
    first = next(iter(inputs), None)
    is_field = isinstance(first, tuple) and bool(first) and isinstance(first[0], str)
    return isinstance(first, torch.Tensor | tuple | list | Mapping) and not is_field


def take(inputs: Any, model: Any, *, tries_loaders: bool, whole: bool = False) -> Taken:
    """Take at most 64 batches of `inputs`, for about 5 s, each as the arguments of a call of `model`, or `whole`.

    With `tries_loaders`, a DataLoader is also timed with other settings, for about 6 s. Raises InvalidWorkload if it
    yields no batch, raises, or a worker dies.
    """
    loader = inputs if has_a_twin(inputs) else None
    own = setting_of(loader) if loader is not None else LoaderSetting(workers=0, prefetch=0, pinned=False)
    source = type(inputs).__name__
    began = time.perf_counter()
    batches, stamps, ended = _first_batches(inputs if loader is None else twin(loader, own), source)
    if not batches:
        raise InvalidWorkload(f"the {source} gives no batch", where="inputs", remedy="give at least one batch")
    timing = timing_of(own, stamps) if len(stamps) > 1 else LoaderTiming(own, (stamps[0] - began) * 1e3, 1)
    tried = tried_otherwise(loader, timing) if loader is not None and tries_loaders else ()
    calls, notes, left_out = _as_calls(batches, model, whole=whole)
    if not ended:
        notes.insert(0, f"only the first {len(batches)} batches of the {source} were taken as samples")
    return Taken(calls, InputPipeline(source, timing, tried), tuple(notes), left_out)


def _first_batches(stream: Any, source: str) -> tuple[list[Any], list[float], bool]:
    """Return the batches, the time at which each one came, and whether the stream ended."""
    batches: list[Any] = []
    stamps: list[float] = []
    deadline = time.perf_counter() + _TAKING_S
    try:
        with iterating(stream) as iterator:
            for batch in iterator:
                batches.append(batch)
                stamps.append(time.perf_counter())
                if len(batches) == MAX_SAMPLES or stamps[-1] > deadline:
                    return batches, stamps, False
    except InvalidWorkload:
        raise
    except Exception as fault:  # whatever a user's dataset raises
        raise InvalidWorkload(
            _said(fault, source), where="inputs", remedy="iterate over it yourself, without workers, to see the error"
        ) from fault
    return batches, stamps, True


def _said(fault: Exception, source: str) -> str:
    text = str(fault)
    if _DIED.search(text):
        return f"a worker process of the {source} died ({text.strip().splitlines()[0]})"
    if "DataLoader timed out" in text:
        return f"the workers of the {source} gave no batch in time ({text.strip().splitlines()[0]})"
    _head, original, trace = text.partition("Original Traceback")
    if not original:
        return f"the {source} raised {describe_fault(fault)}"
    places = re.findall(r'File "([^"]+)", line (\d+), in (\S+)', trace)
    where = f" ({places[-1][0]}:{places[-1][1]} in {places[-1][2]})" if places else ""
    return f"the {source} raised {trace.strip().splitlines()[-1]}{where} in a worker"


def tried_otherwise(loader: DataLoader[Any], own: LoaderTiming) -> tuple[LoaderTiming, ...]:
    """Time other settings until the time is over. The most workers come first, because slow datasets need them."""
    batch_s = own.batch_ms / 1e3
    if batch_s > _TRYING_S / 2:
        return ()
    deadline = time.perf_counter() + _TRYING_S
    found = []
    for setting in sorted(other_settings(own.setting), key=lambda setting: (setting.prefetch, -setting.workers)):
        left = deadline - time.perf_counter()
        if left > batch_s:
            found.append(timed(loader, setting, min(left, max(_ONE_TRY_S, _BATCHES_A_TRY * batch_s))))
    told = [timing for timing in found if timing is not None]
    return tuple(sorted(told, key=lambda timing: (timing.setting.workers, timing.setting.prefetch)))


def _as_calls(batches: list[Any], model: Any, *, whole: bool) -> tuple[list[Any], list[str], str]:
    """Return the batches as samples on the model's device, the notes, and the note on what was left out."""
    calls, notes, left_out = [], [], ""
    home = next((p.device for p in model.parameters()), None) if isinstance(model, nn.Module) else None
    for batch in batches:
        call, note = (batch, "") if whole else accepted(tuple(batch) if isinstance(batch, list) else batch, model)
        if home is not None and any(tensor.device != home for tensor in tensors_in(call)):
            call = mapped(lambda tensor: tensor.to(home), call)
            notes.append(f"the batches were moved to {home}, where the model is")
        calls.append(call)
        notes.append(note)
        left_out = left_out or note
    return calls, [note for note in dict.fromkeys(notes) if note], left_out
