"""Whether a model's weights are those that a program has a copy of.

Read once when they were packed, and once when they are loaded. While the program serves, it is looked at whether
something may have changed since, which takes a fraction of a microsecond a tensor; only then are they read again.

What is seen: another tensor in a module, a tensor on other memory (`tensor.data = ...`) or of another dtype or layout,
and what changes a tensor in place, as an optimizer, `load_state_dict` and every operation with a trailing underscore
do; a step of torch's fused optimizers is not counted by torch, but heard of. What is not seen: writing into a tensor's
memory behind torch's back: in place through `tensor.data`, through a NumPy view or another library's, or in inference
mode into tensors that were made in it; and tensors that lie elsewhere than in the modules' parameters, buffers and
attributes, such as in lists or closures.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from autocompile.runtime.base import Loaded, WeightsDiffer
from autocompile.runtime.model_watch import State, Watch, registered_tensors
from autocompile.runtime.placed import InPython

_MOST_THREADS = 8
_DIGEST_BYTES = 16
# In the place of a digest where a tensor's bytes cannot be read; it is like no other.
UNREADABLE = ""

_versions = attrgetter("_version")


def digests(model: Any) -> dict[str, str]:
    """What each of the model's tensors holds, by its path: dtype, shape, and a digest of its bytes."""
    named = dict(_tensors_of(model))
    distinct = {id(tensor): tensor for tensor in named.values()}
    with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
        read = dict(zip(distinct, pool.map(_digest, distinct.values()), strict=True))
    return {path: read[id(tensor)] for path, tensor in named.items()}


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

    `watch` is the model's, and is asked by the caller before each question.
    """

    def __init__(self, model: Any, packed: Mapping[str, str] | None, watch: Watch) -> None:
        _FUSED_STEPS.listen()
        self.watch = watch
        self._model = model
        self._packed = digests(model) if packed is None else packed
        self._reading = threading.Lock()
        self._look = self._looked()

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

    def __init__(self, model: Any, packed: Mapping[str, str], state: State) -> None:
        self._model, self._state = model, state
        self._step = _FUSED_STEPS.latest
        self._held = _identities(model)
        tensors = list({id(tensor): tensor for _path, tensor in _tensors_of(model)}.values())
        # Keeps their memory, so that no other tensor comes to lie there unnoticed.
        self._memory = [tensor.detach() for tensor in tensors]
        self._counted = [tensor for tensor in tensors if not tensor.is_inference()]
        self._counts = list(map(_versions, self._counted))
        self._placed = InPython(tensors) if tensors else None
        self.difference = difference(packed, digests(model))

    def holds(self, state: State) -> bool:
        """Whether nothing was written to since, as far as can be seen."""
        if state is not self._state:
            if _identities(self._model) != self._held:
                return False
            self._state = state
        try:
            written = list(map(_versions, self._counted)) != self._counts
        except RuntimeError:  # one that is not counted any more
            return False
        if written or self._step is not _FUSED_STEPS.latest:
            return False
        return self._placed is None or self._placed.hold()


def _tensors_of(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Every parameter, buffer, and tensor that a module has as a plain attribute, by its path."""
    yield from registered_tensors(model)
    for path, module in model.named_modules() if isinstance(model, nn.Module) else ():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                yield f"{path}.{name}".lstrip("."), value


def _identities(model: Any) -> list[tuple[str, int]]:
    return [(path, id(tensor)) for path, tensor in _tensors_of(model)]


def _digest(tensor: torch.Tensor) -> str:
    try:
        with torch.no_grad():
            plain = tensor.detach().to_dense() if tensor.layout is not torch.strided else tensor.detach()
            whole = plain.resolve_conj().resolve_neg().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    except (RuntimeError, NotImplementedError, TypeError):
        return UNREADABLE
    shape = "x".join(map(str, tensor.shape))
    read = hashlib.blake2b(whole.data, digest_size=_DIGEST_BYTES).hexdigest()
    return f"{str(tensor.dtype).removeprefix('torch.')} {shape} {read}"
