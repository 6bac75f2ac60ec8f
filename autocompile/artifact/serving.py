"""How calls are served: by a compiled program, by a compiler, or eager; counted, and never refused."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Hashable, Sequence
from typing import Any, Protocol

import torch
from torch.utils import _pytree as pytree

from autocompile.core.errors import UsageError
from autocompile.core.plan import EAGER
from autocompile.core.serving import AS_IT_IS, Serving
from autocompile.runtime.base import Loaded, NotLoadable, OtherThread, WeightsDiffer
from autocompile.runtime.built import Built
from autocompile.runtime.guards import Guard, Refusal
from autocompile.runtime.model_watch import Watch
from autocompile.runtime.weights import Weights
from autocompile.workload.samples import Sample, clone

_LOG = logging.getLogger("autocompile")
# Compiled for in the background, at most: beyond so many kinds of call a compiler gives up too.
_MOST_KINDS = 16
# Reasons that are told apart: a caller may bring new ones without end.
_MOST_REASONS, _OTHERS = 64, "others"


class Tally:
    """Counts calls by the runtime that served them, and by why they went to the fallback."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[str, int] = {}
        self._refused: dict[str, tuple[int, str]] = {}

    def served(self, serving: Serving) -> None:
        """One more call."""
        with self._lock:
            self._calls[serving.runtime] = self._calls.get(serving.runtime, 0) + 1

    def refused(self, refusal: Refusal) -> None:
        """One more call that what was loaded could not serve; said once for each kind of reason."""
        with self._lock:
            kind = refusal.kind
            if kind not in self._refused and len(self._refused) >= _MOST_REASONS:
                kind, refusal = _OTHERS, Refusal(_OTHERS, "other reasons, of which there are many")
            count, first = self._refused.get(kind, (0, refusal.message))
            self._refused[kind] = (count + 1, first)
        if count == 0:
            _LOG.warning("a call was served by the fallback: %s; said once, see module.status", refusal.message)

    @property
    def calls(self) -> dict[str, int]:
        """Calls by runtime."""
        with self._lock:
            return dict(self._calls)

    @property
    def refusals(self) -> tuple[tuple[str, int], ...]:
        """The first message of each kind of reason, and how many calls it had."""
        with self._lock:
            return tuple((message, count) for count, message in self._refused.values())


class Server(Protocol):
    """Serves a call like the model would, in the way that `serving` says; `label` is the configuration that it is."""

    @property
    def serving(self) -> Serving: ...

    @property
    def label(self) -> str: ...

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> Any:
        """The model's output for these arguments."""
        ...


class Ready:
    """What has nothing to compile at its first call: eager, in whichever configuration."""

    def __init__(self, built: Built, tally: Tally, serving: Serving = AS_IT_IS, label: str = EAGER) -> None:
        self._built, self._tally, self.serving, self.label = built, tally, serving, label

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._tally.served(self.serving)
        return self._built(*args, **kwargs)


class NoModel:
    """Stands where the model would serve, and was not given; `reason` is why it was to serve."""

    serving, label = AS_IT_IS, EAGER

    def __call__(self, _args: tuple[Any, ...], _kwargs: dict[str, Any], reason: str = "") -> Any:
        why = f" ({reason})" if reason else ""
        raise UsageError(
            f"the compiled program was not made for this call{why}, and there is no model to serve it",
            where="load",
            remedy="call load(path, model)",
        )


class Compiling:
    """`torch.compile` at the first call, which is not safe in several threads at once.

    Eager serves where compiling fails and the model itself does not, where the model is put together otherwise by now,
    and where a call comes from a thread that what was compiled does not serve.
    """

    def __init__(self, built: Built, eager: Server, watch: Watch, tally: Tally, serving: Serving, label: str) -> None:
        self.serving, self.label = serving, label
        self._built, self._eager, self._watch, self._tally = built, eager, watch, tally
        self._first = threading.Lock()
        self._compiled = self._failed = False

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        changed = self._watch.changed()
        if changed:
            self._tally.refused(Refusal("model", changed))
        if changed or self._failed:
            return self._eager(args, kwargs)
        try:
            if not self._compiled:
                return self._at_first(args, kwargs)
            output = self._built(*args, **kwargs)
        except OtherThread as fault:
            self._tally.refused(Refusal("thread", str(fault)))
            return self._eager(args, kwargs)
        self._tally.served(self.serving)
        return output

    def _at_first(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self._first:
            try:
                output = self._built(*args, **kwargs)
            except OtherThread:  # whose first call has just compiled it
                raise
            except Exception as fault:  # the compiler's, or the model's own, which eager raises again
                output = self._eager(args, kwargs)
                self._failed = True
                self.serving, self.label = self._eager.serving, self._eager.label
                self._tally.refused(Refusal("compiler", f"compiling failed: {type(fault).__name__}: {fault}"))
            else:
                self._compiled = True
                self._tally.served(self.serving)
        return output


class Background:
    """Eager, until a thread has compiled for a kind of call; from then on that kind is served compiled."""

    def __init__(self, built: Built, eager: Server, watch: Watch, tally: Tally, serving: Serving, label: str) -> None:
        self.serving, self.label = serving, label
        self._built, self._eager, self._watch, self._tally = built, eager, watch, tally
        self._ready: set[Hashable] = set()
        self._asked: set[Hashable] = set()
        self._waiting: deque[tuple[Hashable, Sample, bool]] = deque()
        self._asking = threading.Lock()
        self._compiling = False

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            kind = _kind_of(args, kwargs)
        except Exception:  # arguments that cannot be described are for the model to judge
            return self._eager(args, kwargs)
        changed = self._watch.changed()
        if changed:
            self._tally.refused(Refusal("model", changed))
            return self._eager(args, kwargs)
        if kind in self._ready:
            output = self._built(*args, **kwargs)
            self._tally.served(self.serving)
            return output
        self._ask(kind, args, kwargs)
        return self._eager(args, kwargs)

    def _ask(self, kind: Hashable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Have this kind compiled, if it was not asked for before; the thread ends when nothing waits."""
        with self._asking:
            if kind in self._asked or len(self._asked) >= _MOST_KINDS:
                return
            self._asked.add(kind)
            self._waiting.append((kind, clone(Sample(args, kwargs)), torch.is_inference_mode_enabled()))
            if not self._compiling:
                self._compiling = True
                threading.Thread(target=self._compile, name="autocompile", daemon=True).start()

    def _compile(self) -> None:
        while True:
            with self._asking:
                if not self._waiting:
                    self._compiling = False
                    return
                kind, sample, in_inference_mode = self._waiting.popleft()
            try:
                with torch.inference_mode(in_inference_mode):
                    self._built(*sample.args, **sample.kwargs)
            except Exception as fault:  # whatever a compiler or a model raises: the callers have eager
                self._tally.refused(Refusal("compiler", f"compiling in the background failed: {fault}"))
            else:
                self._ready.add(kind)


class Holding:
    """Another server, while the model's weights are those that it was built with; eager, where they are others."""

    def __init__(self, server: Server, eager: Server, weights: Weights, tally: Tally) -> None:
        self._server, self._eager, self._weights, self._tally = server, eager, weights, tally

    @property
    def serving(self) -> Serving:
        """The other's."""
        return self._server.serving

    @property
    def label(self) -> str:
        """The other's."""
        return self._server.label

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        changed = self._weights.watch.changed()
        refusal = Refusal("model", changed) if changed else Refusal("weights", self._weights.difference())
        if refusal.message:
            self._tally.refused(refusal)
            return self._eager(args, kwargs)
        return self._server(args, kwargs)


class ProgramServer:
    """Compiled programs behind guards, with something that can serve every call behind them.

    A call that no program was made for goes to the `fallback`; a model that is not put together as it was is
    `eager`'s, as a fallback may have been built of what it was. Weights that the programs cannot run on are `others`'s
    (by default eager's): what serves now is what served the last call.
    """

    def __init__(
        self,
        programs: Sequence[tuple[Guard, Loaded]],
        watch: Watch,
        fallback: Server,
        eager: Server,
        tally: Tally,
        serving: Serving,
        label: str,
        others: Server | None = None,
    ) -> None:
        self._programs, self._watch, self._fallback, self._eager = programs, watch, fallback, eager
        self._tally, self._own, self.label = tally, serving, label
        self._others = others
        self.differs = ""

    @property
    def serving(self) -> Serving:
        """Its own, or that of what serves other weights."""
        return self._others.serving if self.differs and self._others is not None else self._own

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        changed = self._watch.changed()
        if changed:
            return self._instead(self._eager, Refusal("model", changed), args, kwargs)
        refusal = None
        for guard, run in self._programs:
            accepted = guard(args, kwargs)
            if isinstance(accepted, Refusal):
                refusal = refusal.or_nearer(accepted) if refusal else accepted
                continue
            try:
                output = run(accepted)
            except NotLoadable as fault:
                return self._instead(self._eager, Refusal("program", str(fault)), args, kwargs)
            except WeightsDiffer as difference:
                self.differs = str(difference)
                return self._instead(self._others or self._eager, Refusal("weights", self.differs), args, kwargs)
            if self.differs:
                self.differs = ""
            self._tally.served(self._own)
            return output
        assert refusal is not None
        return self._instead(self._fallback, refusal, args, kwargs)

    def _instead(self, server: Server, refusal: Refusal, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if isinstance(server, NoModel):  # an error that nothing serves, and is none of the fallback's calls
            return server(args, kwargs, refusal.message)
        self._tally.refused(refusal)
        return server(args, kwargs)


def _kind_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable:
    """Equal for calls that one compilation serves."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    described = tuple(
        (leaf.dtype, tuple(leaf.shape), leaf.stride(), leaf.device) if isinstance(leaf, torch.Tensor) else repr(leaf)
        for leaf in leaves
    )
    return described, str(spec), torch.is_inference_mode_enabled()
