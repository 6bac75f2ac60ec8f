"""The result of `autocompile.load`: called like the model, with a `status` that reports how calls are served."""

from __future__ import annotations

from collections.abc import Iterator
from types import MethodType
from typing import Any, SupportsIndex

from torch import nn

from autocompile.artifact.passing import answer
from autocompile.artifact.serving import Server, Tally
from autocompile.artifact.standin import stand_in
from autocompile.core.errors import UsageError
from autocompile.core.manifest import Absence
from autocompile.core.serde import Record
from autocompile.core.serving import Start
from autocompile.runtime.building import runtime

# Names with double underscores that are attributes of functions, and may be read from the model.
_PASSED = frozenset({"__name__", "__qualname__"})


class Fallback(Record, frozen=True):
    """Why calls were served by the fallback (the reason of the first such call), and how many."""

    reason: str
    calls: int


class CacheUse(Record, frozen=True):
    """The compiler's counters in this process: programs that were found in its cache, and programs that were not."""

    hits: int
    misses: int


class Status(Record, frozen=True):
    """How a loaded module serves.

    Attributes:
        runtime: The runtime that serves: `aot` (a program compiled ahead of time), `inductor` (`torch.compile`),
            `eager`, and so on.
        start: How it starts: it can `load` a program, compile with a packed `cache`, `compile` at the first call, or
            have nothing to compile (`none`).
        label: The configuration that serves.
        absences: Why no better way to serve is used.
        calls: The number of calls, by the runtime that served them.
        fallbacks: The calls that the fallback served, with reasons.
        cache: Hits and misses, if there is a packed compiler cache; else None.
        notes: What else differs from the state when the model was tuned.
    """

    runtime: str
    start: Start
    label: str
    absences: tuple[Absence, ...]
    calls: dict[str, int]
    fallbacks: tuple[Fallback, ...]
    cache: CacheUse | None
    notes: tuple[str, ...]


class CompiledModule:
    """Called like the model that it was loaded with. It shares the model's weights, and follows changes of them.

    `status` reports how it serves; `model` is the model that it was loaded with. All other attributes are the model's:
    they can be read, set and deleted. If a method of the model calls the whole model, the call is served like a call of
    this module; calls of submodules are not compiled separately. Methods that move, convert or train the model raise
    UsageError, and so do copying and pickling.

    Calls run without gradients, and may come from several threads. Loading sets the number of CPU threads of the whole
    process, if the configuration has one.
    """

    model: Any
    _server: Server
    _about: About
    _tally: Tally
    _standing: Any

    def __init__(self, server: Server, model: Any, about: About, tally: Tally) -> None:
        vars(self).update(model=model, _server=server, _about=about, _tally=tally, _standing=None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._server(args, kwargs)

    @property
    def status(self) -> Status:
        """How calls are currently served."""
        serving = self._server.serving
        return Status(
            runtime=serving.runtime,
            start=serving.start,
            label=self._server.label,
            absences=self._about.absences,
            calls=self._tally.calls,
            fallbacks=tuple(Fallback(reason, calls) for reason, calls in self._tally.refusals),
            cache=cache_use(serving.runtime) if serving.start == "cache" else None,
            notes=self._about.notes,
        )

    def __repr__(self) -> str:
        return f"<CompiledModule {self._server.label}, served by {self._server.serving}>"

    def __getattr__(self, name: str) -> Any:
        model = vars(self).get("model")
        if name.startswith("__") and name not in _PASSED:
            raise AttributeError(f"a loaded module has no {name}")
        if model is None:
            raise AttributeError(
                f"there is no {name}, because the artifact was loaded without a model; call load(path, model)"
            )
        answered = answer(self, model, name) if isinstance(model, nn.Module) else None
        if answered is not None:
            return answered
        value = getattr(model, name)
        return getattr(self._stand_in(), name) if _calls_maybe(value, model) else value

    def __setattr__(self, name: str, value: Any) -> None:
        self._check_settable(name)
        setattr(self.model, name, value)

    def __delattr__(self, name: str) -> None:
        self._check_settable(name)
        delattr(self.model, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self.model)} if self.model is not None else super().__dir__())

    def __len__(self) -> int:
        return len(self.model)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.model)

    def __getitem__(self, key: Any) -> Any:
        return self.model[key]

    def __contains__(self, item: Any) -> bool:
        return item in self.model

    def __bool__(self) -> bool:
        return self.model is None or bool(self.model)

    def __reduce_ex__(self, _protocol: SupportsIndex) -> Any:
        raise UsageError(
            "a loaded module cannot be copied or pickled, because it may contain native code",
            where="CompiledModule",
            remedy="copy or pickle the model, and load again",
        )

    def _check_settable(self, name: str) -> None:
        if name in vars(self) or name in vars(type(self)):
            raise AttributeError(f"{name} of a loaded module cannot be changed; load it again")
        if self.model is None:
            raise AttributeError(f"{name} cannot be changed without a model; call load(path, model)")

    def _stand_in(self) -> Any:
        """Return the stand-in that the model's methods run on; the model itself if there can be no stand-in."""
        standing = self._standing
        if not isinstance(standing, type(self.model)):
            derived = stand_in(self.model, self._server)
            standing = self.model if derived is None else derived
            vars(self)["_standing"] = standing
        return standing


def _calls_maybe(value: Any, model: Any) -> bool:
    """Return whether `value` is a method that may call the model: all except torch's own, but including `forward`."""
    if not isinstance(value, MethodType) or value.__self__ is not model:
        return False
    name = getattr(value.__func__, "__name__", "")
    return name == "forward" or not isinstance(model, nn.Module) or value.__func__ is not getattr(nn.Module, name, None)


class About(Record, frozen=True):
    """What is known about a module when it is loaded: see `Status`."""

    absences: tuple[Absence, ...] = ()
    notes: tuple[str, ...] = ()


def cache_use(name: str) -> CacheUse:
    """Return what the runtime's compiler has counted so far."""
    counted = runtime(name).counters()
    return CacheUse(counted.cache_hits, counted.cache_misses)
