"""Servers: serve calls by a compiled program, by a compiler, or eager. Calls are counted, and never refused."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any, Protocol

from autocompile.core.errors import UsageError
from autocompile.core.plan import EAGER
from autocompile.core.serving import AS_IT_IS, Serving
from autocompile.runtime.base import Loaded, NotLoadable, OtherThread, WeightsDiffer
from autocompile.runtime.built import Built
from autocompile.runtime.guards import Guard, Refusal
from autocompile.runtime.model_watch import Watch
from autocompile.runtime.weights import Weights

_LOG = logging.getLogger("autocompile")
# The most reasons that are counted separately. A caller may bring new ones without end.
_MOST_REASONS, _OTHERS = 64, "others"


class Tally:
    """Counts calls by the runtime that served them, and calls of the fallback by reason."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[str, int] = {}
        self._refused: dict[str, tuple[int, str]] = {}

    def served(self, serving: Serving) -> None:
        """Count a call."""
        with self._lock:
            self._calls[serving.runtime] = self._calls.get(serving.runtime, 0) + 1

    def refused(self, refusal: Refusal) -> None:
        """Count a call that the fallback serves; log it once for each kind of reason."""
        with self._lock:
            kind = refusal.kind
            if kind not in self._refused and len(self._refused) >= _MOST_REASONS:
                kind, refusal = _OTHERS, Refusal(_OTHERS, "many other reasons")
            count, first = self._refused.get(kind, (0, refusal.message))
            self._refused[kind] = (count + 1, first)
        if count == 0:
            _LOG.warning("a call was served by the fallback: %s; logged once, see module.status", refusal.message)

    @property
    def calls(self) -> dict[str, int]:
        """Calls by runtime."""
        with self._lock:
            return dict(self._calls)

    @property
    def refusals(self) -> tuple[tuple[str, int], ...]:
        """The first message of each kind of reason, and the number of calls."""
        with self._lock:
            return tuple((message, count) for count, message in self._refused.values())


class Server(Protocol):
    """Serves calls like the model, in the way that `serving` says; `label` is its configuration."""

    @property
    def serving(self) -> Serving: ...

    @property
    def label(self) -> str: ...

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> Any:
        """Return the model's output for these arguments."""
        ...


class Ready:
    """Serves with a model that has nothing to compile: eager, in any configuration."""

    def __init__(self, built: Built, tally: Tally, serving: Serving = AS_IT_IS, label: str = EAGER) -> None:
        self._built, self._tally, self.serving, self.label = built, tally, serving, label

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._tally.served(self.serving)
        return self._built(*args, **kwargs)


class NoModel:
    """Takes the place of a model that was not given. A call raises UsageError; `reason` is why the model was needed."""

    serving, label = AS_IT_IS, EAGER

    def __call__(self, _args: tuple[Any, ...], _kwargs: dict[str, Any], reason: str = "") -> Any:
        why = f" ({reason})" if reason else ""
        raise UsageError(
            f"the program was not compiled for this call{why}, and there is no model to serve it",
            where="load",
            remedy="call load(path, model)",
        )


class Compiling:
    """Compiles at the first call, in one thread at a time, because `torch.compile` is not thread-safe.

    Eager serves if compiling fails and the model itself does not, if the structure of the model has changed, and for
    calls from a thread that the compiled code does not support.
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
            except OtherThread:  # another thread's first call has just compiled it
                raise
            except Exception as fault:  # the compiler's error, or the model's own, which eager raises again
                output = self._eager(args, kwargs)
                self._failed = True
                self.serving, self.label = self._eager.serving, self._eager.label
                self._tally.refused(Refusal("compiler", f"compiling failed: {type(fault).__name__}: {fault}"))
            else:
                self._compiled = True
                self._tally.served(self.serving)
        return output


class Holding:
    """Serves by another server until the model's weights are not those that it was built with; then by eager.

    Eager then serves for good: to compare the weights again at each call would take longer than the call.
    """

    def __init__(self, server: Server, eager: Server, weights: Weights, tally: Tally) -> None:
        self._server, self._eager, self._weights, self._tally = server, eager, weights, tally
        self._differs = ""

    @property
    def serving(self) -> Serving:
        """How the other server serves."""
        return self._server.serving

    @property
    def label(self) -> str:
        """The label of the other server."""
        return self._server.label

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        changed = self._weights.watch.changed()
        if not changed and not self._differs:
            self._differs = self._weights.difference()
        refusal = Refusal("model", changed) if changed else Refusal("weights", self._differs)
        if refusal.message:
            self._tally.refused(refusal)
            return self._eager(args, kwargs)
        return self._server(args, kwargs)


class ProgramServer:
    """Compiled programs behind guards, with servers for the calls that they cannot serve.

    A call that no program was compiled for goes to `fallback`. If the structure of the model has changed, `eager`
    serves, because the fallback may have been built from the old structure. If the programs cannot use the weights,
    `others` serves (by default eager). `serving` is how the last call was served.
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
        """How the programs serve, or the server for other weights, if that one served the last call."""
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
        if isinstance(server, NoModel):  # raises an error, which does not count as a call of the fallback
            return server(args, kwargs, refusal.message)
        self._tally.refused(refusal)
        return server(args, kwargs)
