"""Loads a recommendation in production."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import nn

from autocompile.artifact import starting
from autocompile.artifact.background import Background
from autocompile.artifact.integrity import Opened, open_artifact
from autocompile.artifact.mismatch import Mismatch, grave_of, lacking, lacking_in, mismatches
from autocompile.artifact.module import About, CompiledModule
from autocompile.artifact.options import BY_DEFAULT, Asked, check_model, preferred
from autocompile.artifact.programs import (
    UNREADABLE,
    Fallbacks,
    StandingBy,
    copied_weights,
    differing,
    load_standby,
    loaded_programs,
    packed_weights,
    program_notes,
    watch_of,
)
from autocompile.artifact.serving import Compiling, Holding, NoModel, ProgramServer, Ready, Server, Tally
from autocompile.core.caution import warn
from autocompile.core.errors import InvalidArtifact, InvalidRecommendation, InvalidValue
from autocompile.core.manifest import Absence, Manifest, Served
from autocompile.core.plan import EAGER, Plan
from autocompile.core.serving import AS_IT_IS, Serving, Start
from autocompile.heap import settle_heap
from autocompile.runtime.base import NotLoadable, NotPackable, WeightsDiffer
from autocompile.runtime.building import LibraryMissing, build, caching
from autocompile.runtime.built import Built
from autocompile.runtime.catalogue import in_process, kind_of
from autocompile.runtime.devices import device_of_model
from autocompile.runtime.model_watch import Watch
from autocompile.runtime.weights import Weights
from autocompile.workload.call import Call


def load(path: str | Path, model: Any = None, asked: Asked = BY_DEFAULT) -> CompiledModule:
    """Serve `model`, or no model if the programs contain the weights: see `autocompile.load`.

    If a decode step was tuned, `model` is the model that generates, or the decode step itself, a `Decoding`.
    """
    opened = open_artifact(Path(path), asked.digest)
    manifest = opened.manifest
    check_model(manifest, model)
    if manifest.generation is None or not isinstance(model, nn.Module):
        return _load(path, opened, model, asked)
    from autocompile.artifact.generating import generating  # noqa: PLC0415  imports transformers

    return generating(model, Path(path), opened, asked, _load)


def _load(path: str | Path, opened: Opened, model: Any, asked: Asked) -> CompiledModule:
    directory, manifest = Path(path), opened.manifest
    grave = grave_of(found := mismatches(manifest, model))
    if grave and asked.on_mismatch == "error":
        raise starting.refused(path, grave[0].message, grave[0].remedy)
    is_used = not grave and preferred(manifest, asked.calls) is None
    weights = packed_weights(manifest, model, asked.weight_check) if is_used else None
    if manifest.device_type == "cpu":
        settle_heap()
    loading = _Loading(directory, opened, manifest, model, weights, asked, Tally())
    if any(mismatch.is_of_the_model for mismatch in found):
        return loading.instead(loading.eager(), found[0].message)
    try:
        return loading.started(found)
    except NotPackable as fault:  # without packed files, the calls to compile for are not known
        return loading.instead(loading.eager(), f"{manifest.label} cannot be built here: {fault}")
    except (InvalidArtifact, FileNotFoundError):
        if open_artifact(directory, asked.digest).manifest == manifest:
            raise
    return load(path, model, asked)  # the artifact was replaced meanwhile, so the new one is loaded


@dataclass(frozen=True)
class _Loading:
    """One artifact while it is loaded: the data that all ways to start need."""

    directory: Path
    opened: Opened
    manifest: Manifest
    model: Any
    weights: Weights | None
    asked: Asked
    tally: Tally

    def started(self, found: Sequence[Mismatch]) -> CompiledModule:
        """Start the artifact, given what does not fit, or a configuration that is better for the number of calls.

        Raises NotPackable if a configuration can only be built for known calls.
        """
        better = None if self.model is None else preferred(self.manifest, self.asked.calls)
        if better is not None:
            reason = f"for {self.asked.calls:,} calls {better.label} is preferred, start-up included"
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
        """Return a server that runs the model as it is."""
        if self.model is None:
            return NoModel()
        return Ready(self._built(Plan()), self.tally)

    def _built(self, plan: Plan) -> Built:
        return build(Call(self.model, device_type=self.manifest.device_type), plan)

    def module(self, server: Server, *, absence: str = "", notes: Sequence[str] = ()) -> CompiledModule:
        """Return the module that this server serves; `absence` is why it does not serve the artifact itself."""
        absences = self.manifest.absences
        if absence:
            absences = (Absence(self.manifest.serving, absence), *absences)
        return CompiledModule(server, self.model, About(absences, tuple(notes)), self.tally)

    def configuration(self, other: Served, reason: str) -> CompiledModule:
        """Return a module with a configuration other than the packed one. If it compiles, it does at the first call."""
        rest = replace(self, manifest=msgspec.structs.replace(self.manifest, plan=other.plan, label=other.label))
        if other.plan.threads:
            torch.set_num_threads(other.plan.threads)
        problem = rest._lacks()  # noqa: SLF001
        if problem:
            return rest.module(rest.eager(), absence=problem)
        if not kind_of(other.plan).compiles:
            return rest.module(rest._ready(), absence=reason, notes=starting.own_limits(other.plan))  # noqa: SLF001
        notes = [rest._compiles(other.startup_s), *starting.own_limits(other.plan)]  # noqa: SLF001
        return rest.module(rest._compiled(rest._unpacked), absence=reason, notes=notes)  # noqa: SLF001

    def instead(self, server: Server, reason: str, remedy: str = "") -> CompiledModule:
        """Return a module served by something other than the artifact, with a warning that gives the remedy.

        Raises InvalidRecommendation if there is no model that could serve.
        """
        if self.model is None:
            others = ", ".join(filter(None, (remedy, "load it with the model, or tune it again")))
            raise InvalidRecommendation(reason, where=str(self.directory), remedy=others)
        served = f"served {EAGER if server.serving == AS_IT_IS else f'by {server.serving.runtime}'}"
        if server.serving.start == "compile":
            start_s = starting.start_of(self.manifest, server.serving, in_process(self.manifest.plan))
            served += f", which {self._compiles(start_s)}"
        warn(f"{reason}; it is {served}; {starting.either(remedy, 'tune it again')}")
        return self.module(server, absence="; ".join(filter(None, (reason, remedy))))

    def _compiles(self, startup_s: float | None) -> str:
        """Return that it compiles, when, and for how long."""
        return starting.compiles(startup_s, "in the background" if self._in_background else "at the first call")

    def _not_packed(self) -> str:
        """Return a note on an artifact without packed files. If calls have to wait for the compiler, also warn."""
        said = self._compiles(starting.start_of(self.manifest, self._unpacked))
        if not self._in_background:
            warn(starting.not_packed(self.manifest, said))
        return said

    def _ahead_of_time(self, found: Sequence[Mismatch]) -> CompiledModule:
        device = device_of_model(self.model, self.manifest.device_type)
        if grave := grave_of(found):
            of_library = all(mismatch.name in ("runtime", "library") for mismatch in grave)
            server = (self._able_standby(device) if of_library else None) or self._behind()
            return self.instead(server, grave[0].message, grave[0].remedy)
        if device.type != self.manifest.device_type:
            fault = f"packed for {self.manifest.device_type}, but the model is on {device.type}"
            return self.instead(self.eager(), fault)
        watch = self.weights.watch if self.weights else watch_of(self.model, self.manifest.identity)
        serving, packed = self.manifest.serving, self.manifest.programs
        try:
            programs = loaded_programs(
                self.opened, serving.runtime, packed, self.model, watch, device,
                weights=self.weights, must_fit=self.manifest.standby is None,
            )  # fmt: skip
        except LibraryMissing as fault:
            return self.instead(self._able_standby(device) or self.eager(), str(fault))
        except WeightsDiffer as difference:
            said = str(difference) if self.weights else f"the model's weights differ: {difference}"
            if self.weights and self.asked.on_mismatch == "error":
                raise starting.refused(self.directory, said) from difference
            return self.instead(self._behind(), said)
        except NotLoadable as fault:
            raise self._invalid(f"its program cannot be loaded: {fault}") from fault
        except UNREADABLE as fault:
            said = f"{type(fault).__name__}: {fault}"
            raise self._invalid(f"the description of its program in the manifest cannot be read: {said}") from fault
        eager, behind = self.eager(), self._behind()
        others = self._standing_by(device, Fallbacks(eager, behind))
        other_sizes = others if others and self.manifest.plan.sizes else behind
        served = ProgramServer(programs, watch, other_sizes, eager, self.tally, serving, self.manifest.label, others)
        served.differs = self.weights.difference() if self.weights else ""
        notes = [f"{served.differs}; {others.label} serves"] if served.differs and others else []
        notes += [*map(str, found), *program_notes(self.manifest, self.weights, self.asked.weight_check)]
        return self.module(served, notes=[*notes, *starting.untimed(self.manifest)])

    def _standing_by(self, device: torch.device, rest: Fallbacks) -> Server | None:
        """Return the server for weights and sizes other than those of the packed programs."""
        standby = self.manifest.standby
        if standby is None or self.model is None:
            return None
        load_it = partial(load_standby, self.opened, standby, self.model, device, rest, self.tally)
        return StandingBy(load_it, standby.plan.runtime, rest.eager, self.tally)

    def _able_standby(self, device: torch.device) -> Server | None:
        """Return the standby, if it fits this machine although the packed programs do not."""
        standby = self.manifest.standby
        if standby is None or device.type != self.manifest.device_type or differing(standby, device):
            return None
        return self._standing_by(device, Fallbacks(self.eager(), self._behind()))

    def _invalid(self, fault: str) -> InvalidArtifact:
        return InvalidArtifact(fault, where=str(self.directory), remedy="tune it again")

    def _from_cache(self, found: Sequence[Mismatch]) -> CompiledModule:
        if grave := grave_of(found):
            return self.instead(self._behind(), grave[0].message)
        serving = self.manifest.serving
        caching(serving.runtime).install_cache(self.opened.contents())
        starts = starting.starts_the_compiler(starting.start_of(self.manifest, serving))
        notes = [
            starts,
            *map(str, found),
            *starting.untimed(self.manifest),
            *starting.own_limits(self.manifest.plan),
        ]
        return self.module(self._compiled(serving), notes=notes)

    def _at_the_first_call(self, found: Sequence[Mismatch]) -> CompiledModule:
        if problem := lacking_in(found):
            return self.instead(self.eager(), problem)
        server = self._compiled(self._unpacked)
        notes = [self._not_packed(), *map(str, found), *starting.own_limits(self.manifest.plan)]
        return self.module(server, notes=notes)

    def _lacks(self) -> str:
        """Return what this machine lacks to run the configuration, or ""."""
        return lacking(self.manifest.plan.runtime, self.manifest.device_type)

    @property
    def _unpacked(self) -> Serving:
        return kind_of(self.manifest.plan).unpacked

    @property
    def _in_background(self) -> bool:
        """Whether a thread compiles; not if the compiled code would then serve only that thread."""
        return self.asked.background and not kind_of(self.manifest.plan).serves_one_thread(self.manifest.plan)

    def _ready(self) -> Server:
        weights = self._own_copy()
        built = self._built(self.manifest.plan)
        return self._held(Ready(built, self.tally, self._unpacked, self.manifest.label), weights)

    def _own_copy(self) -> Weights | None:
        return copied_weights(self.manifest.plan, self.model, self._watch())

    def _held(self, server: Server, weights: Weights | None) -> Server:
        return Holding(server, self.eager(), weights, self.tally) if weights else server

    def _watch(self) -> Watch:
        return Watch(self.model, self.manifest.identity.attributes, runs_hooks=True)

    def _configured(self, found: Sequence[Mismatch]) -> CompiledModule:
        if problem := lacking_in(found):
            return self.instead(self.eager(), problem)
        notes = [*map(str, found), *starting.own_limits(self.manifest.plan)]
        return self.module(self._ready(), notes=notes)

    def _behind(self) -> Server:
        """Return the fallback."""
        if self.asked.fallback == "jit" and self.model is not None:
            with suppress(NotPackable, InvalidValue):  # InvalidValue: the runtime does not exist here
                plan = in_process(self.manifest.plan)
                rest = replace(self, manifest=msgspec.structs.replace(self.manifest, plan=plan))
                if not rest._lacks() and kind_of(plan).compiles:  # noqa: SLF001
                    return rest._compiled(rest._unpacked)  # noqa: SLF001
        return self.eager()

    def _compiled(self, serving: Serving) -> Server:
        weights = self._own_copy()
        built = self._built(self.manifest.plan)
        kind_of_server = Background if self._in_background else Compiling
        own = kind_of_server(built, self.eager(), self._watch(), self.tally, serving, self.manifest.label)
        return self._held(own, weights)
