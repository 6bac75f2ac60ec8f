"""What `autocompile.load` gives: called like the model, with a status that tells how it serves."""

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

# Names with underscores around them that are a function's, and not the interpreter's.
_PASSED = frozenset({"__name__", "__qualname__"})


class Fallback(Record, frozen=True):
    """Why calls were not served as the module was loaded to (the first such call's reason), and how many."""

    reason: str
    calls: int


class CacheUse(Record, frozen=True):
    """What the compiler counted in this process: programs found in its cache, and programs that were not."""

    hits: int
    misses: int


class Status(Record, frozen=True):
    """How a loaded module serves.

    `runtime` serves it: `aot` (a program compiled ahead), `inductor` (`torch.compile`), `eager`. `start` is what it
    does to start: `load` a program, compile from a carried `cache`, `compile` at the first call, or `none`. `label` is
    the configuration that serves. `absences` say why nothing better is used. `calls` by the runtime that served them;
    `fallbacks` with reasons. `cache` is what proves the hits of a carried cache, else None. `notes` say what else
    differs from where it was tuned.
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
    """Called like the model that it was loaded with; it shares that model's weights, and follows their changes.

    `status` tells how it serves, `model` is what it was loaded with. Every other attribute is the model's, to read, to
    set and to delete. The model's own methods run with this module in the model's place: where they call the whole
    model, the call is served as one of this module's is; what they call of its parts is not compiled by itself.
    What would move, convert or train the model raises UsageError, and so does copying or pickling.

    Calls run without gradients, and may come from several threads. The configuration's number of CPU threads is
    a setting of the whole process, and is applied at loading.
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
        """How it serves, as of now."""
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
                f"there is no {name}: this artifact was loaded without a model; call load(path, model)"
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
            "a loaded module may hold native code, and cannot be copied or pickled",
            where="CompiledModule",
            remedy="copy or pickle the model, and load again",
        )

    def _check_settable(self, name: str) -> None:
        if name in vars(self) or name in vars(type(self)):
            raise AttributeError(f"{name} is the loaded module's own, and stays; load again for another")
        if self.model is None:
            raise AttributeError(f"there is no model that {name} could be set of; call load(path, model)")

    def _stand_in(self) -> Any:
        """What the model's methods run on; the model itself where there can be no other."""
        standing = self._standing
        if not isinstance(standing, type(self.model)):
            derived = stand_in(self.model, self._server)
            standing = self.model if derived is None else derived
            vars(self)["_standing"] = standing
        return standing


def _calls_maybe(value: Any, model: Any) -> bool:
    """Whether it is a method of the model's that may call it: all but torch's own, and those that are called so."""
    if not isinstance(value, MethodType) or value.__self__ is not model:
        return False
    name = getattr(value.__func__, "__name__", "")
    return name == "forward" or not isinstance(model, nn.Module) or value.__func__ is not getattr(nn.Module, name, None)


class About(Record, frozen=True):
    """What is known of a module at loading: see `Status`."""

    absences: tuple[Absence, ...] = ()
    notes: tuple[str, ...] = ()


def cache_use(name: str) -> CacheUse:
    """What the runtime's compiler counted so far."""
    counted = runtime(name).counters()
    return CacheUse(counted.cache_hits, counted.cache_misses)
