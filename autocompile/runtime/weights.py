"""Whether a model's weights are those that a program has a copy of.

Read once when they were packed, and once when they are loaded, where a sample of each may do. While the program serves,
it is looked at whether something may have changed since, which takes a fraction of a microsecond a tensor; only then
are they read again.

What is seen: another tensor in a module, a tensor on other memory (`tensor.data = ...`) or of another dtype or layout,
and what changes a tensor in place, as an optimizer, `load_state_dict` and every operation with a trailing underscore
do; a step of torch's fused optimizers is not counted by torch, but heard of. Writing into a tensor's memory behind
torch's back (in place through `tensor.data`, through a NumPy view, in inference mode into tensors that were made in it)
is seen on a CPU where it changes all or most of a tensor (`witnesses.py`). What is not seen: such writing to a few
elements, or on another device; and tensors that lie elsewhere than in the modules' parameters, buffers and attributes,
such as in lists or closures.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from autocompile.runtime.base import Loaded, WeightsDiffer
from autocompile.runtime.model_watch import State, Watch, registered_tensors
from autocompile.runtime.unwritten import Unwritten

_MOST_THREADS = 8
# Larger tensors are read in pieces of so many bytes, each with a digest of its own: threads can share them then.
_PIECE_BYTES = 1 << 20
_DIGEST_DIGITS = 32
# A sample of a tensor: so many pieces of so many bytes, evenly spaced, with both ends.
_SAMPLES, _SAMPLE_BYTES = 16, 256
# In the place of a digest where a tensor's bytes cannot be read; it is like no other.
UNREADABLE = ""


def digests(model: Any, *, sampled: bool = False) -> dict[str, str]:
    """What each of the model's tensors holds, by its path: dtype, shape, and a digest of its bytes.

    `sampled`: of 16 pieces of 256 bytes of each, at even distances.
    """
    named = dict(_tensors_of(model))
    readings = {id(tensor): _Reading(tensor, sampled) for tensor in named.values()}
    _done_in_threads([part for reading in readings.values() for part in reading.parts()])
    return {path: readings[id(tensor)].digest() for path, tensor in named.items()}


def difference(packed: Mapping[str, str], present: Mapping[str, str]) -> str:
    """In what the weights differ from those that were packed, in words, or ""."""
    differ = [p for p in packed if p in present and (packed[p] != present[p] or packed[p] == UNREADABLE)]
    words = [
        *(f"{path} differs" for path in differ),
        *(f"there is no {path}" for path in packed if path not in present),
        *(f"there was no {path}" for path in present if path not in packed),
    ]
    if not words:
        return ""
    more = f", and {len(words) - 1} more" if len(words) > 1 else ""
    return f"the weights are not those that were packed: {words[0]}{more}"


class _FusedSteps:
    """Hears of steps of fused optimizers, whose kernels write without torch's counting it."""

    def __init__(self) -> None:
        self.latest = object()
        self._listens = False

    def listen(self) -> None:
        """From now on; `latest` is another object after each."""
        if not self._listens:
            self._listens = True
            register_optimizer_step_post_hook(self._stepped)

    def _stepped(self, optimizer: Optimizer, _args: Any, _keywords: Any) -> None:
        if any(group.get("fused") for group in optimizer.param_groups):
            self.latest = object()


_FUSED_STEPS = _FusedSteps()


class Weights:
    """A model's weights, compared with `packed` (None: as they are now), once and after each change that is seen.

    `watch` is the model's, and is asked by the caller before each question. `samples`: those of the packed weights,
    with which the model's are compared at first; after a change all of them are read.
    """

    def __init__(
        self,
        model: Any,
        packed: Mapping[str, str] | None,
        watch: Watch,
        samples: Mapping[str, str] | None = None,
    ) -> None:
        _FUSED_STEPS.listen()
        self.watch = watch
        self._model = model
        self._packed = digests(model) if packed is None else packed
        self._reading = threading.Lock()
        self._look = self._looked() if samples is None else _Look(model, samples, watch.state, sampled=True)

    def difference(self) -> str:
        """In what they differ now from those that were packed, or ""."""
        look = self._look
        if not look.holds(self.watch.state):
            with self._reading:
                if not self._look.holds(self.watch.state):
                    self._look = self._looked()
                look = self._look
        return look.difference

    def holding(self, run: Loaded) -> Loaded:
        """A program that has these weights of its own, which raises WeightsDiffer where the model's are others."""

        def held(tensors: list[torch.Tensor]) -> Any:
            differs = self.difference()
            if differs:
                raise WeightsDiffer(differs)
            return run(tensors)

        return held

    def _looked(self) -> _Look:
        return _Look(self._model, self._packed, self.watch.state)


class _Look:
    """Where the weights lay and how often they had been written to, noted before they were read."""

    def __init__(self, model: Any, packed: Mapping[str, str], state: State, *, sampled: bool = False) -> None:
        self._model, self._state = model, state
        self._step = _FUSED_STEPS.latest
        self._held = _identities(model)
        self._unwritten = Unwritten([tensor for _path, tensor in _tensors_of(model)])
        self.difference = difference(packed, digests(model, sampled=sampled))

    def holds(self, state: State) -> bool:
        """Whether nothing was written to since, as far as can be seen."""
        if state is not self._state:
            if _identities(self._model) != self._held:
                return False
            self._state = state
        return self._step is _FUSED_STEPS.latest and self._unwritten.hold()


def _tensors_of(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Every parameter, buffer, and tensor that a module has as a plain attribute, by its path."""
    yield from registered_tensors(model)
    for path, module in model.named_modules() if isinstance(model, nn.Module) else ():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                yield f"{path}.{name}".lstrip("."), value


def _identities(model: Any) -> list[tuple[str, int]]:
    return [(path, id(tensor)) for path, tensor in _tensors_of(model)]


# Some bytes to be read, how many they are, and what reads them.
_Part = tuple[int, Callable[[], None]]


def _done_in_threads(parts: list[_Part]) -> None:
    """Whoever is free takes the next; the largest come first, so that all end at about the same time."""
    left = deque(sorted(parts, key=lambda part: part[0], reverse=True))

    def work() -> None:
        while left:
            try:
                _size, read = left.popleft()
            except IndexError:  # another took the last one meanwhile
                return
            read()

    threads = min(_MOST_THREADS, os.cpu_count() or 1, len(parts))
    if threads < 2:
        work()
        return
    with ThreadPoolExecutor(threads - 1) as pool:
        others = [pool.submit(work) for _ in range(threads - 1)]
        work()
        for other in others:
            other.result()


class _Reading:
    """One tensor's bytes, in the order of its elements, and what was read of them."""

    def __init__(self, tensor: torch.Tensor, sampled: bool) -> None:
        self._tensor = tensor
        self._sampled = sampled
        self._digests: dict[int, bytes] = {}
        self._is_readable = True

    def parts(self) -> Iterator[_Part]:
        """What there is to read. A tensor that has to be copied for it is one part, so that few copies are held."""
        tensor = self._tensor
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided or not tensor.is_contiguous():
            yield tensor.numel() * tensor.element_size(), self._read_copy
            return
        whole = self._bytes()
        if whole is not None:
            for start, piece in self._pieces(whole):
                yield len(piece), partial(self._read, start, piece)

    def digest(self) -> str:
        """Dtype, shape and digest, once all was read."""
        if not self._is_readable:
            return UNREADABLE
        pieces = [self._digests[start] for start in sorted(self._digests)]
        read = pieces[0] if len(pieces) == 1 else hashlib.sha256(b"".join(pieces)).digest()
        shape = "x".join(map(str, self._tensor.shape))
        return f"{str(self._tensor.dtype).removeprefix('torch.')} {shape} {read.hex()[:_DIGEST_DIGITS]}"

    def _read(self, start: int, piece: memoryview) -> None:
        self._digests[start] = hashlib.sha256(piece).digest()

    def _read_copy(self) -> None:
        whole = self._bytes()
        if whole is not None:
            for start, piece in self._pieces(whole):
                self._read(start, piece)

    def _pieces(self, whole: memoryview) -> Iterator[tuple[int, memoryview]]:
        """What is read of these bytes, by where it begins."""
        if self._sampled:
            last = max(len(whole) - _SAMPLE_BYTES, 0)
            starts = sorted({last * i // (_SAMPLES - 1) for i in range(_SAMPLES)})
            yield 0, memoryview(b"".join(whole[start : start + _SAMPLE_BYTES] for start in starts))
            return
        for start in range(0, max(len(whole), 1), _PIECE_BYTES):
            yield start, whole[start : start + _PIECE_BYTES]

    def _bytes(self) -> memoryview | None:
        """None if they cannot be read."""
        tensor = self._tensor.detach()
        try:
            with torch.no_grad():
                plain = tensor if tensor.layout is torch.strided else tensor.to_dense()
                dense = plain.resolve_conj().resolve_neg().cpu().contiguous()
                return dense.reshape(-1).view(torch.uint8).numpy().data
        except (RuntimeError, NotImplementedError, TypeError):
            self._is_readable = False
            return None
