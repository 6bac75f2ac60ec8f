"""A recommendation, applied in production."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import torch

from autocompile.artifact import starting
from autocompile.artifact.integrity import Opened, open_artifact
from autocompile.artifact.mismatch import Mismatch, mismatches
from autocompile.artifact.module import About, CompiledModule
from autocompile.artifact.serving import EAGER, AheadOfTime, Background, Compiling, Eager, Server, Tally
from autocompile.compilers import cpp_compiler
from autocompile.core.caution import warn
from autocompile.core.envelope import at_calls
from autocompile.core.errors import InvalidArtifact, InvalidRecommendation, InvalidValue, UsageError
from autocompile.core.manifest import Absence, Manifest, Served, Tier
from autocompile.core.plan import Plan
from autocompile.heap import settle_heap
from autocompile.runtime.aot.program import Native, NotLoadable, WeightsDiffer, registered_tensors
from autocompile.runtime.guards import Guard
from autocompile.runtime.inductor.build import build
from autocompile.runtime.inductor.cache import install
from autocompile.runtime.model_watch import Watch

OnMismatch = Literal["fallback", "error"]
Fallback = Literal["eager", "jit"]


def load(
    path: str | Path,
    model: Any = None,
    *,
    calls: int | None = None,
    on_mismatch: OnMismatch = "fallback",
    fallback: Fallback = "eager",
    digest: str | None = None,
    background: bool = False,
) -> CompiledModule:
    """Serve `model` as the recommendation at `path` says; the model stays as it is, and keeps its weights.

    Parameters: `model`, the one that was tuned (None only if it has no weights); `calls`, how many calls
    this process will make, for which the best tier is then taken; `on_mismatch`, what to do if the
    artifact does not fit this model or machine: serve by the fallback, with a warning, or raise;
    `fallback`, what serves then, and whatever call the compiled program was not made for: `eager`, or
    `jit`, which compiles at its first call; `digest`, "sha256:...", refuses any other artifact;
    `background`, where something is to be compiled, serves eager until a thread has done it.
    The configuration's CPU threads, and on a CPU how glibc's heap keeps what is freed (`autocompile.heap`),
    are settings of the whole process, and are applied.

    Loading an artifact runs native code from it. Raises InvalidArtifact, before anything in it is opened,
    if its files are not the ones that were packed or others may change them; InvalidRecommendation if there
    is none, or, with `on_mismatch="error"`, if it does not fit; UsageError if the model is missing.
    """
    _check_options(calls, on_mismatch, fallback)
    directory = Path(path)
    opened = open_artifact(directory, digest)
    manifest = opened.manifest
    _check_model(manifest, model)
    found = mismatches(manifest, model)
    grave = [mismatch for mismatch in found if not mismatch.is_only_noted]
    if grave and on_mismatch == "error":
        raise InvalidRecommendation(grave[0].message, where=str(path), remedy="tune it again for what is here")
    if manifest.device_type == "cpu":
        settle_heap()
    loading = _Loading(directory, opened, manifest, model, fallback, background, Tally())
    if any(mismatch.is_of_the_model for mismatch in found):
        return loading.instead(loading.eager(), found[0].message)
    better = None if model is None else _better_for(manifest, calls)
    if better is not None:
        return loading.configuration(better, f"for {calls:,} calls {better.label} is preferred, start-up included")
    if manifest.plan.threads:
        torch.set_num_threads(manifest.plan.threads)
    return loading.by_tier[manifest.tier](found)


@dataclass(frozen=True)
class _Loading:
    """One artifact on its way to a module: what every tier's loading needs."""

    directory: Path
    opened: Opened
    manifest: Manifest
    model: Any
    fallback: Fallback
    background: bool
    tally: Tally

    @property
    def by_tier(self) -> dict[Tier, Callable[[Sequence[Mismatch]], CompiledModule]]:
        """How each tier is loaded, given what does not fit."""
        return {"aot": self._ahead_of_time, "cache": self._from_cache, "jit": self._jit, "eager": self._configured}

    def eager(self) -> Server:
        """The model as it is."""
        if self.model is None:
            return _NoModel()
        return Eager(build(self.model, Plan(), self.manifest.device_type), self.tally)

    def module(self, server: Server, *, absence: str = "", notes: Sequence[str] = ()) -> CompiledModule:
        """The module that this server serves; `absence` is why it is not the artifact's own tier."""
        absences = self.manifest.absences
        if absence:
            absences = (Absence(self.manifest.tier, absence), *absences)
        return CompiledModule(server, self.model, About(absences, tuple(notes)), self.tally)

    def configuration(self, other: Served, reason: str) -> CompiledModule:
        """Another configuration than the packed one, for a reason; what it compiles, it compiles at the first call."""
        rest = replace(self, manifest=msgspec.structs.replace(self.manifest, plan=other.plan, label=other.label))
        if other.plan.threads:
            torch.set_num_threads(other.plan.threads)
        if not other.plan.compiles:
            built = Eager(build(self.model, other.plan, self.manifest.device_type), self.tally, other.label)
            return rest.module(built, absence=reason, notes=rest._own_weights())  # noqa: SLF001
        problem = self._no_compiler()
        if problem:
            return rest.module(rest.eager(), absence=problem)
        notes = [rest._compiles(other.startup_s), *rest._own_weights()]  # noqa: SLF001
        return rest.module(rest._compiled("jit"), absence=reason, notes=notes)  # noqa: SLF001

    def instead(self, server: Server, reason: str) -> CompiledModule:
        """Something else than the artifact serves, which its user should hear of."""
        served = f"served {server.tier}"
        if server.tier == "jit":
            served += f", which {self._compiles(starting.start_of(self.manifest, 'jit'))}"
        warn(f"{reason}; it is {served}; tune it again")
        return self.module(server, absence=reason)

    def _compiles(self, startup_s: float | None) -> str:
        """That it compiles, when, and for how long."""
        return starting.compiles(startup_s, "in the background" if self.background else "at the first call")

    def _not_packed(self) -> str:
        """What is said of an artifact that is the configuration alone; as a warning, where calls wait for it."""
        said = self._compiles(starting.start_of(self.manifest, "jit"))
        if not self.background:
            why = starting.why_not_packed(self.manifest.absences)
            remedy = "call it once before it has to answer, or load it with background=True"
            message = f"{self.manifest.label} {said}: it was not packed{f' ({why})' if why else ''}; {remedy}"
            warn(message)
        return said

    def _ahead_of_time(self, found: Sequence[Mismatch]) -> CompiledModule:
        if found:
            return self.instead(self._behind(), found[0].message)
        device = _device_of(self.model, self.manifest.device_type)
        if device.type != self.manifest.device_type:
            fault = f"packed for {self.manifest.device_type}, and the model is on {device.type}"
            return self.instead(self.eager(), fault)
        watch = Watch(self.model, self.manifest.identity.attributes)
        try:
            programs = [
                (Guard(program, self.model, device), Native(program, self.opened.contents, self.model, watch))
                for program in self.manifest.programs
            ]
        except WeightsDiffer as difference:
            return self.instead(self._behind(), f"the model's weights are others: {difference}")
        except NotLoadable as fault:
            raise InvalidArtifact(
                f"its program cannot be loaded: {fault}", where=str(self.directory), remedy="tune it again"
            ) from fault
        served = AheadOfTime(programs, watch, self._behind(), self.eager(), self.tally, self.manifest.label)
        return self.module(served, notes=starting.untimed(self.manifest))

    def _from_cache(self, found: Sequence[Mismatch]) -> CompiledModule:
        grave = next((mismatch.message for mismatch in found if not mismatch.is_only_noted), "")
        problem = grave or self._no_compiler()
        if problem:
            return self.instead(self._behind(), problem)
        install(self.opened.contents)
        starts = starting.starts_the_compiler(starting.start_of(self.manifest, "cache"))
        noted = (mismatch.message for mismatch in found)
        notes = [starts, *noted, *starting.untimed(self.manifest), *self._own_weights()]
        return self.module(self._compiled("cache"), notes=notes)

    def _jit(self, found: Sequence[Mismatch]) -> CompiledModule:
        problem = self._no_compiler()
        if problem:
            return self.instead(self.eager(), problem)
        notes = [self._not_packed(), *(mismatch.message for mismatch in found), *self._own_weights()]
        return self.module(self._compiled("jit"), notes=notes)

    def _no_compiler(self) -> str:
        """Why nothing can be compiled here, or ""."""
        if self.manifest.device_type != "cpu" or self.manifest.plan.backend != "inductor" or cpp_compiler():
            return ""
        return "there is no C++ compiler, without which torch compiles nothing and does not use its cache"

    def _own_weights(self) -> list[str]:
        """What a plan does that keeps later changes of the model's weights from being followed."""
        if self.manifest.plan.options.get("freezing"):
            return ["the weights are constants of what is compiled: later changes of them are not followed"]
        if self.manifest.plan.memory_format:
            return ["weights in another memory format are copies: later changes of them are not followed"]
        return []

    def _configured(self, found: Sequence[Mismatch]) -> CompiledModule:
        built = build(self.model, self.manifest.plan, self.manifest.device_type)
        notes = [*(mismatch.message for mismatch in found), *self._own_weights()]
        return self.module(Eager(built, self.tally, self.manifest.label), notes=notes)

    def _behind(self) -> Server:
        """What serves where the artifact does not."""
        compiles = self.fallback == "jit" and self.manifest.plan.compiles and self.model is not None
        if compiles and not self._no_compiler():
            return self._compiled("jit")
        return self.eager()

    def _compiled(self, tier: Tier) -> Server:
        built = build(self.model, self.manifest.plan, self.manifest.device_type)
        kind = Background if self.background else Compiling
        watch = Watch(self.model, self.manifest.identity.attributes)
        return kind(built, self.eager(), watch, self.tally, tier, self.manifest.label)


def _device_of(model: Any, device_type: str) -> torch.device:
    """Where the model's weights are; for one without any, the current device of this type."""
    first = next((tensor for _path, tensor in registered_tensors(model)), None)
    if first is not None:
        return first.device
    return torch.device("cuda", torch.cuda.current_device()) if device_type == "cuda" else torch.device(device_type)


def _better_for(manifest: Manifest, calls: int | None) -> Served | None:
    """What the verdict prefers to the artifact itself for so many calls; None if nothing."""
    if calls is None or not manifest.served:
        return None
    work = calls * manifest.batch_factor
    if not manifest.envelope:  # packed by a version that kept no verdicts for other numbers of calls
        best = min(manifest.served, key=lambda one: one.startup_s + work * one.latency_s)
        return None if best.plan == manifest.plan else best
    label = at_calls(manifest.envelope, work).label
    return next((one for one in manifest.served if one.label == label and one.plan != manifest.plan), None)


class _NoModel:
    """Stands where the model would serve, and was not given."""

    tier: Tier = "eager"
    label = EAGER

    def __call__(self, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
        raise UsageError(
            "the compiled program was not made for this call, and there is no model to serve it",
            where="load",
            remedy="call load(path, model)",
        )


def _check_model(manifest: Manifest, model: Any) -> None:
    if callable(model):
        return
    stands_alone = manifest.tier == "aot" and all(w.lifted for p in manifest.programs for w in p.weights)
    if model is None and stands_alone:
        return
    fault = "the model is missing" if model is None else f"a {type(model).__name__} cannot be called"
    remedy = "call load(path, model): the artifact holds how to run it, and not its weights"
    raise UsageError(fault, where="load", remedy=remedy)


def _check_options(calls: int | None, on_mismatch: str, fallback: str) -> None:
    if on_mismatch not in get_args(OnMismatch):
        raise InvalidValue(f"{on_mismatch!r} is unknown", where="on_mismatch", remedy="give 'fallback' or 'error'")
    if fallback not in get_args(Fallback):
        raise InvalidValue(f"{fallback!r} is unknown", where="fallback", remedy="give 'eager' or 'jit'")
    if calls is not None and (not isinstance(calls, int) or calls < 1):
        raise InvalidValue(f"{calls!r} is not a number of calls", where="calls", remedy="give 1 or more")
