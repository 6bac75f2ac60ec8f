"""A recommendation, applied in production."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import torch

from autocompile.artifact import starting
from autocompile.artifact.integrity import Opened, open_artifact
from autocompile.artifact.mismatch import Mismatch, lacking, mismatches
from autocompile.artifact.module import About, CompiledModule
from autocompile.artifact.options import Fallback, OnMismatch, check_model, check_options, preferred
from autocompile.artifact.serving import Background, Compiling, Holding, NoModel, ProgramServer, Ready, Server, Tally
from autocompile.core.caution import warn
from autocompile.core.errors import InvalidArtifact, InvalidRecommendation
from autocompile.core.manifest import Absence, Manifest, Served
from autocompile.core.plan import EAGER, Plan
from autocompile.core.program import Program
from autocompile.core.serving import AS_IT_IS, Serving, Start
from autocompile.heap import settle_heap
from autocompile.runtime.base import NotLoadable, NotPackable, WeightsDiffer
from autocompile.runtime.building import ahead, build, caching
from autocompile.runtime.built import Built
from autocompile.runtime.catalogue import kind, kind_of
from autocompile.runtime.guards import Guard
from autocompile.runtime.model_watch import Watch, registered_tensors
from autocompile.runtime.weights import Weights
from autocompile.workload.call import Call


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
    check_options(calls, on_mismatch, fallback)
    directory = Path(path)
    opened = open_artifact(directory, digest)
    manifest = opened.manifest
    check_model(manifest, model)
    found = mismatches(manifest, model)
    weights = None if found else _packed_weights(manifest, model)
    differs = weights.difference() if weights else ""
    found = (*found, *([Mismatch("weights", differs)] if differs else []))
    grave = [mismatch for mismatch in found if not mismatch.is_only_noted]
    if grave and on_mismatch == "error":
        raise InvalidRecommendation(grave[0].message, where=str(path), remedy="tune it again for what is here")
    if manifest.device_type == "cpu":
        settle_heap()
    loading = _Loading(directory, opened, manifest, model, weights, fallback, background, Tally())
    if any(mismatch.is_of_the_model for mismatch in found):
        return loading.instead(loading.eager(), found[0].message)
    try:
        return loading.started(calls, found)
    except NotPackable as fault:  # what is served unpacked has no call to compile for
        return loading.instead(loading.eager(), f"{manifest.label} cannot be built here: {fault}")


@dataclass(frozen=True)
class _Loading:
    """One artifact on its way to a module: what every way to start needs."""

    directory: Path
    opened: Opened
    manifest: Manifest
    model: Any
    weights: Weights | None
    fallback: Fallback
    background: bool
    tally: Tally

    def started(self, calls: int | None, found: Sequence[Mismatch]) -> CompiledModule:
        """The artifact in the way that it starts, given what does not fit, or what is better for so many calls.

        Raises NotPackable where a configuration can only be built for calls that are known.
        """
        better = None if self.model is None else preferred(self.manifest, calls)
        if better is not None:
            reason = f"for {calls:,} calls {better.label} is preferred, start-up included"
            return self.configuration(better, reason)
        if self.manifest.plan.threads:
            torch.set_num_threads(self.manifest.plan.threads)
        by_start: dict[Start, Callable[[Sequence[Mismatch]], CompiledModule]] = {
            "load": self._ahead_of_time,
            "cache": self._from_cache,
            "compile": self._at_the_first_call,
            "none": self._configured,
        }
        return by_start[self.manifest.serving.start](found)

    def eager(self) -> Server:
        """The model as it is."""
        if self.model is None:
            return NoModel()
        return Ready(self._built(Plan()), self.tally)

    def _built(self, plan: Plan) -> Built:
        return build(Call(self.model, device_type=self.manifest.device_type), plan)

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
        problem = rest._lacks()  # noqa: SLF001
        if problem:
            return rest.module(rest.eager(), absence=problem)
        if not kind_of(other.plan).compiles:
            return rest.module(rest._ready(), absence=reason, notes=rest._own_weights())  # noqa: SLF001
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
        watch = self.weights.watch if self.weights else self._watch()
        try:
            own = ahead(self.manifest.serving.runtime)
            programs = [
                (Guard(program, self.model, device), own.load(program, self._files_of(program), self.model, watch))
                for program in self.manifest.programs
            ]
        except WeightsDiffer as difference:
            return self.instead(self._behind(), f"the model's weights are others: {difference}")
        except NotLoadable as fault:
            raise self._invalid(f"its program cannot be loaded: {fault}") from fault
        except (AttributeError, LookupError, TypeError, ValueError) as fault:  # what a record of another form leads to
            said = f"{type(fault).__name__}: {fault}"
            raise self._invalid(f"what its manifest says of its program cannot be read: {said}") from fault
        if self.weights:
            programs = [(guard, self.weights.holding(run)) for guard, run in programs]
        serving, label = self.manifest.serving, self.manifest.label
        served = ProgramServer(programs, watch, self._behind(), self.eager(), self.tally, serving, label)
        return self.module(served, notes=starting.untimed(self.manifest))

    def _invalid(self, fault: str) -> InvalidArtifact:
        return InvalidArtifact(fault, where=str(self.directory), remedy="tune it again")

    def _files_of(self, program: Program) -> dict[str, bytes]:
        return {name: self.opened.contents[f"{program.directory}/{name}"] for name in program.files}

    def _from_cache(self, found: Sequence[Mismatch]) -> CompiledModule:
        grave = next((mismatch.message for mismatch in found if not mismatch.is_only_noted), "")
        if grave:
            return self.instead(self._behind(), grave)
        serving = self.manifest.serving
        carried = {path.partition("/")[2]: data for path, data in self.opened.contents.items()}
        caching(serving.runtime).install_cache(carried)
        starts = starting.starts_the_compiler(starting.start_of(self.manifest, serving))
        noted = (mismatch.message for mismatch in found)
        notes = [starts, *noted, *starting.untimed(self.manifest), *self._own_weights()]
        return self.module(self._compiled(serving), notes=notes)

    def _at_the_first_call(self, found: Sequence[Mismatch]) -> CompiledModule:
        problem = _lacking_in(found)
        if problem:
            return self.instead(self.eager(), problem)
        server = self._compiled(self._unpacked)
        notes = [self._not_packed(), *(mismatch.message for mismatch in found), *self._own_weights()]
        return self.module(server, notes=notes)

    def _lacks(self) -> str:
        """What this machine lacks to run the configuration, or ""."""
        return lacking(self.manifest.plan.runtime, self.manifest.device_type)

    @property
    def _unpacked(self) -> Serving:
        return kind_of(self.manifest.plan).unpacked

    def _own_weights(self) -> list[str]:
        """What a plan does that keeps later changes of the model's weights from being followed."""
        return list(filter(None, [kind_of(self.manifest.plan).keeps_weights(self.manifest.plan)]))

    def _ready(self) -> Server:
        weights = self._own_copy()
        built = self._built(self.manifest.plan)
        return self._held(Ready(built, self.tally, self._unpacked, self.manifest.label), weights)

    def _own_copy(self) -> Weights | None:
        """The weights as they are before anything is built, where what is built has a copy of them."""
        holds = kind_of(self.manifest.plan).holds_weights
        return Weights(self.model, None, self._watch()) if holds else None

    def _held(self, server: Server, weights: Weights | None) -> Server:
        return Holding(server, self.eager(), weights, self.tally) if weights else server

    def _watch(self) -> Watch:
        return Watch(self.model, self.manifest.identity.attributes)

    def _configured(self, found: Sequence[Mismatch]) -> CompiledModule:
        problem = _lacking_in(found)
        if problem:
            return self.instead(self.eager(), problem)
        notes = [*(mismatch.message for mismatch in found), *self._own_weights()]
        return self.module(self._ready(), notes=notes)

    def _behind(self) -> Server:
        """What serves where the artifact does not."""
        asked = self.fallback == "jit" and self.model is not None
        if asked and not self._lacks() and kind_of(self.manifest.plan).compiles:
            with suppress(NotPackable):
                return self._compiled(self._unpacked)
        return self.eager()

    def _compiled(self, serving: Serving) -> Server:
        weights = self._own_copy()
        built = self._built(self.manifest.plan)
        kind_of_server = Background if self.background else Compiling
        own = kind_of_server(built, self.eager(), self._watch(), self.tally, serving, self.manifest.label)
        return self._held(own, weights)


def _packed_weights(manifest: Manifest, model: Any) -> Weights | None:
    """The model's weights, compared with those that the programs have copies of; None if they have none."""
    if model is None or manifest.serving.start != "load" or not kind(manifest.serving.runtime).holds_weights:
        return None
    return Weights(model, manifest.weights, Watch(model, manifest.identity.attributes))


def _lacking_in(found: Sequence[Mismatch]) -> str:
    """What the runtime itself lacks here, without which nothing of the configuration can be applied."""
    return next((mismatch.message for mismatch in found if mismatch.name == "runtime"), "")


def _device_of(model: Any, device_type: str) -> torch.device:
    """Where the model's weights are; for one without any, the current device of this type."""
    first = next((tensor for _path, tensor in registered_tensors(model)), None)
    if first is not None:
        return first.device
    return torch.device("cuda", torch.cuda.current_device()) if device_type == "cuda" else torch.device(device_type)
