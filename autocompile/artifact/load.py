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
from autocompile.artifact.serving import AheadOfTime, Background, Compiling, Ready, Server, Tally
from autocompile.core.caution import warn
from autocompile.core.envelope import at_calls
from autocompile.core.errors import InvalidArtifact, InvalidRecommendation, InvalidValue, UsageError
from autocompile.core.manifest import Absence, Manifest, Served
from autocompile.core.plan import EAGER, Plan
from autocompile.core.program import Program
from autocompile.core.serving import AS_IT_IS, Serving, Start
from autocompile.heap import settle_heap
from autocompile.runtime.base import NotLoadable, WeightsDiffer
from autocompile.runtime.building import build, runtime
from autocompile.runtime.catalogue import kind_of
from autocompile.runtime.guards import Guard
from autocompile.runtime.model_watch import Watch, registered_tensors
from autocompile.workload.call import Call

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
    this process will make, for which the best configuration is then taken; `on_mismatch`, what to do if the
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
    return loading.by_start[manifest.serving.start](found)


@dataclass(frozen=True)
class _Loading:
    """One artifact on its way to a module: what every way to start needs."""

    directory: Path
    opened: Opened
    manifest: Manifest
    model: Any
    fallback: Fallback
    background: bool
    tally: Tally

    @property
    def by_start(self) -> dict[Start, Callable[[Sequence[Mismatch]], CompiledModule]]:
        """How each way to start is loaded, given what does not fit."""
        return {
            "load": self._ahead_of_time,
            "cache": self._from_cache,
            "compile": self._at_the_first_call,
            "none": self._configured,
        }

    def eager(self) -> Server:
        """The model as it is."""
        if self.model is None:
            return _NoModel()
        return Ready(build(Call(self.model, device_type=self.manifest.device_type), Plan()), self.tally)

    def module(self, server: Server, *, absence: str = "", notes: Sequence[str] = ()) -> CompiledModule:
        """The module that this server serves; `absence` is why it is not the artifact itself."""
        absences = self.manifest.absences
        if absence:
            absences = (Absence(self.manifest.serving, absence), *absences)
        return CompiledModule(server, self.model, About(absences, tuple(notes)), self.tally)

    def configuration(self, other: Served, reason: str) -> CompiledModule:
        """Another configuration than the packed one, for a reason; what it compiles, it compiles at the first call."""
        rest = replace(self, manifest=msgspec.structs.replace(self.manifest, plan=other.plan, label=other.label))
        if other.plan.threads:
            torch.set_num_threads(other.plan.threads)
        if not kind_of(other.plan).compiles:
            return rest.module(rest._ready(), absence=reason, notes=rest._own_weights())  # noqa: SLF001
        problem = rest._lacks()  # noqa: SLF001
        if problem:
            return rest.module(rest.eager(), absence=problem)
        notes = [rest._compiles(other.startup_s), *rest._own_weights()]  # noqa: SLF001
        return rest.module(rest._compiled(rest._unpacked), absence=reason, notes=notes)  # noqa: SLF001

    def instead(self, server: Server, reason: str) -> CompiledModule:
        """Something else than the artifact serves, which its user should hear of."""
        served = f"served {EAGER if server.serving == AS_IT_IS else f'by {server.serving.runtime}'}"
        if server.serving.start == "compile":
            served += f", which {self._compiles(starting.start_of(self.manifest, server.serving))}"
        warn(f"{reason}; it is {served}; tune it again")
        return self.module(server, absence=reason)

    def _compiles(self, startup_s: float | None) -> str:
        """That it compiles, when, and for how long."""
        return starting.compiles(startup_s, "in the background" if self.background else "at the first call")

    def _not_packed(self) -> str:
        """What is said of an artifact that is the configuration alone; as a warning, where calls wait for it."""
        said = self._compiles(starting.start_of(self.manifest, self._unpacked))
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
            own = runtime(self.manifest.serving.runtime)
            programs = [
                (Guard(program, self.model, device), own.load(program, self._files_of(program), self.model, watch))
                for program in self.manifest.programs
            ]
        except WeightsDiffer as difference:
            return self.instead(self._behind(), f"the model's weights are others: {difference}")
        except NotLoadable as fault:
            raise InvalidArtifact(
                f"its program cannot be loaded: {fault}", where=str(self.directory), remedy="tune it again"
            ) from fault
        serving, label = self.manifest.serving, self.manifest.label
        served = AheadOfTime(programs, watch, self._behind(), self.eager(), self.tally, serving, label)
        return self.module(served, notes=starting.untimed(self.manifest))

    def _files_of(self, program: Program) -> dict[str, bytes]:
        return {name: self.opened.contents[f"{program.directory}/{name}"] for name in program.files}

    def _from_cache(self, found: Sequence[Mismatch]) -> CompiledModule:
        grave = next((mismatch.message for mismatch in found if not mismatch.is_only_noted), "")
        problem = grave or self._lacks()
        if problem:
            return self.instead(self._behind(), problem)
        serving = self.manifest.serving
        carried = {path.partition("/")[2]: data for path, data in self.opened.contents.items()}
        runtime(serving.runtime).install_cache(carried)
        starts = starting.starts_the_compiler(starting.start_of(self.manifest, serving))
        noted = (mismatch.message for mismatch in found)
        notes = [starts, *noted, *starting.untimed(self.manifest), *self._own_weights()]
        return self.module(self._compiled(serving), notes=notes)

    def _at_the_first_call(self, found: Sequence[Mismatch]) -> CompiledModule:
        problem = self._lacks()
        if problem:
            return self.instead(self.eager(), problem)
        notes = [self._not_packed(), *(mismatch.message for mismatch in found), *self._own_weights()]
        return self.module(self._compiled(self._unpacked), notes=notes)

    def _lacks(self) -> str:
        """What this machine lacks to run the configuration, or ""."""
        return kind_of(self.manifest.plan).lacks(self.manifest.device_type)

    @property
    def _unpacked(self) -> Serving:
        return kind_of(self.manifest.plan).unpacked

    def _own_weights(self) -> list[str]:
        """What a plan does that keeps later changes of the model's weights from being followed."""
        return list(filter(None, [kind_of(self.manifest.plan).keeps_weights(self.manifest.plan)]))

    def _ready(self) -> Server:
        built = build(Call(self.model, device_type=self.manifest.device_type), self.manifest.plan)
        return Ready(built, self.tally, self._unpacked, self.manifest.label)

    def _configured(self, found: Sequence[Mismatch]) -> CompiledModule:
        notes = [*(mismatch.message for mismatch in found), *self._own_weights()]
        return self.module(self._ready(), notes=notes)

    def _behind(self) -> Server:
        """What serves where the artifact does not."""
        compiles = self.fallback == "jit" and kind_of(self.manifest.plan).compiles and self.model is not None
        if compiles and not self._lacks():
            return self._compiled(self._unpacked)
        return self.eager()

    def _compiled(self, serving: Serving) -> Server:
        built = build(Call(self.model, device_type=self.manifest.device_type), self.manifest.plan)
        server = Background if self.background else Compiling
        watch = Watch(self.model, self.manifest.identity.attributes)
        return server(built, self.eager(), watch, self.tally, serving, self.manifest.label)


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

    serving = AS_IT_IS
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
    stands_alone = manifest.serving.start == "load" and not any(program.needs_model for program in manifest.programs)
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
