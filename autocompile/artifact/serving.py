"""How calls are served: by a compiled program, by a compiler, or eager; counted, and never refused."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Hashable, Sequence
from typing import Any, Protocol

import torch
from torch.utils import _pytree as pytree

from autocompile.artifact.guards import Guard, Refusal
from autocompile.artifact.native import Native, WeightsDiffer
from autocompile.artifact.watch import Watch
from autocompile.core.manifest import Tier
from autocompile.workload.build import Built
from autocompile.workload.samples import Sample, clone

_LOG = logging.getLogger("autocompile")


class Tally:
    """Counts calls by the tier that served them, and by why they went to the fallback."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[Tier, int] = {}
        self._refused: dict[str, tuple[int, str]] = {}

    def served(self, tier: Tier) -> None:
        """One more call."""
        with self._lock:
            self._calls[tier] = self._calls.get(tier, 0) + 1

    def refused(self, refusal: Refusal) -> None:
        """One more call that a better tier could not serve; said once for each kind of reason."""
        with self._lock:
            count, first = self._refused.get(refusal.kind, (0, refusal.message))
            self._refused[refusal.kind] = (count + 1, first)
        if count == 0:
            _LOG.warning("a call was served by the fallback: %s; said once, see module.status", refusal.message)

    @property
    def calls(self) -> dict[Tier, int]:
        """Calls by tier."""
        with self._lock:
            return dict(self._calls)

    @property
    def refusals(self) -> tuple[tuple[str, int], ...]:
        """The first message of each kind of reason, and how many calls it had."""
        with self._lock:
            return tuple((message, count) for count, message in self._refused.values())


class Server(Protocol):
    """Serves a call like the model would."""

    tier: Tier

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> Any:
        """The model's output for these arguments."""
        ...


class Eager:
    """Nothing is compiled."""

    tier: Tier = "eager"

    def __init__(self, built: Built, tally: Tally) -> None:
        self._built, self._tally = built, tally

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._tally.served(self.tier)
        return self._built(*args, **kwargs)


class Compiling:
    """`torch.compile` at the first call, which is not safe in several threads at once."""

    def __init__(self, built: Built, tally: Tally, tier: Tier) -> None:
        self.tier: Tier = tier
        self._built, self._tally = built, tally
        self._first = threading.Lock()
        self._compiled = False

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._compiled:
            output = self._built(*args, **kwargs)
        else:
            with self._first:
                output = self._built(*args, **kwargs)
                self._compiled = True
        self._tally.served(self.tier)
        return output


class Background:
    """Eager, until a thread has compiled for a kind of call; from then on that kind is served compiled."""

    def __init__(self, built: Built, eager: Server, tally: Tally, tier: Tier) -> None:
        self.tier: Tier = tier
        self._built, self._eager, self._tally = built, eager, tally
        self._ready: set[Hashable] = set()
        self._asked: set[Hashable] = set()
        self._waiting: queue.SimpleQueue[tuple[Hashable, Sample, bool]] = queue.SimpleQueue()
        self._asking = threading.Lock()
        threading.Thread(target=self._compile, name="autocompile", daemon=True).start()

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        kind = _kind_of(args, kwargs)
        if kind in self._ready:
            output = self._built(*args, **kwargs)
            self._tally.served(self.tier)
            return output
        with self._asking:
            if kind not in self._asked:
                self._asked.add(kind)
                self._waiting.put((kind, clone(Sample(args, kwargs)), torch.is_inference_mode_enabled()))
        return self._eager(args, kwargs)

    def _compile(self) -> None:
        while True:
            kind, sample, in_inference_mode = self._waiting.get()
            try:
                with torch.inference_mode(in_inference_mode):
                    self._built(*sample.args, **sample.kwargs)
            except Exception as fault:  # whatever a compiler or a model raises: the callers have eager
                self._tally.refused(Refusal("compiler", f"compiling in the background failed: {fault}"))
            else:
                self._ready.add(kind)


class AheadOfTime:
    """Compiled programs behind guards, with something that can serve every call behind them."""

    tier: Tier = "aot"

    def __init__(self, programs: Sequence[tuple[Guard, Native]], watch: Watch, fallback: Server, tally: Tally) -> None:
        self._programs, self._watch, self._fallback, self._tally = programs, watch, fallback, tally

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        changed = self._watch.changed()
        refusal = Refusal("model", changed) if changed else None
        for guard, native in () if changed else self._programs:
            accepted = guard(args, kwargs)
            if isinstance(accepted, Refusal):
                refusal = accepted
                continue
            try:
                output = native(accepted)
            except WeightsDiffer as difference:
                refusal = Refusal("weights", str(difference))
                break
            self._tally.served(self.tier)
            return output
        assert refusal is not None
        self._tally.refused(refusal)
        return self._fallback(args, kwargs)


def _kind_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable:
    """Equal for calls that one compilation serves."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    described = tuple(
        (leaf.dtype, tuple(leaf.shape), leaf.stride(), leaf.device) if isinstance(leaf, torch.Tensor) else repr(leaf)
        for leaf in leaves
    )
    return described, str(spec), torch.is_inference_mode_enabled()
