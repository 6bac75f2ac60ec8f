"""What `autocompile.load` gives: called like the model, with a status that tells how it serves."""

from __future__ import annotations

from typing import Any

from autocompile.artifact.serving import Server, Tally
from autocompile.core.manifest import Absence, Tier
from autocompile.core.serde import Record


class Fallback(Record, frozen=True):
    """Why calls were not served by the module's tier (the first such call's reason), and how many."""

    reason: str
    calls: int


class CacheUse(Record, frozen=True):
    """What the compiler counted in this process: programs found in its cache, and programs that were not."""

    hits: int
    misses: int


class Status(Record, frozen=True):
    """How a loaded module serves.

    `tier`: `aot` (a compiled program), `cache` (the compiler, from its carried cache), `jit` (the compiler,
    at the first call) or `eager`. `label` is the configuration. `absences` say why no better tier is used.
    `calls` by the tier that served them; `fallbacks` with reasons. `cache` is what proves the cache tier's
    hits, else None. `notes` say what else differs from where it was tuned.
    """

    tier: Tier
    label: str
    absences: tuple[Absence, ...]
    calls: dict[Tier, int]
    fallbacks: tuple[Fallback, ...]
    cache: CacheUse | None
    notes: tuple[str, ...]


class CompiledModule:
    """Called like the model that it was loaded with; it shares that model's weights, and follows their changes.

    `status` tells how it serves, `model` is what it was loaded with. Calls run without gradients, and may
    come from several threads. The configuration's number of CPU threads is a setting of the whole process,
    and is applied at loading.
    """

    def __init__(self, server: Server, model: Any, about: About, tally: Tally) -> None:
        self.model = model
        self._server, self._about, self._tally = server, about, tally

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._server(args, kwargs)

    @property
    def status(self) -> Status:
        """How it serves, as of now."""
        return Status(
            tier=self._server.tier,
            label=self._about.label,
            absences=self._about.absences,
            calls=self._tally.calls,
            fallbacks=tuple(Fallback(reason, calls) for reason, calls in self._tally.refusals),
            cache=cache_use() if self._server.tier == "cache" else None,
            notes=self._about.notes,
        )

    def __repr__(self) -> str:
        return f"<CompiledModule {self._about.label}, tier {self._server.tier}>"


class About(Record, frozen=True):
    """What is known of a module at loading: see `Status`."""

    label: str
    absences: tuple[Absence, ...] = ()
    notes: tuple[str, ...] = ()


def cache_use() -> CacheUse:
    """What the compiler counted so far."""
    from torch._dynamo.utils import counters  # noqa: PLC0415  only what compiles may import the compiler

    inductor, aot = counters["inductor"], counters["aot_autograd"]
    return CacheUse(
        hits=inductor["fxgraph_cache_hit"] + aot["autograd_cache_hit"],
        misses=inductor["fxgraph_cache_miss"] + aot["autograd_cache_miss"],
    )
