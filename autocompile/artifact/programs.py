"""Programs of an artifact, loaded: those that were packed, and those that stand by for changed weights."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from autocompile.artifact.integrity import Opened
from autocompile.artifact.mismatch import grave_of, machine_mismatches
from autocompile.artifact.options import WeightCheck
from autocompile.artifact.serving import ProgramServer, Server, Tally
from autocompile.core.manifest import Manifest, Standby
from autocompile.core.program import Program
from autocompile.core.serving import Serving
from autocompile.runtime.base import Loaded, NotLoadable, WeightsDiffer
from autocompile.runtime.building import LibraryMissing, ahead, close
from autocompile.runtime.catalogue import kind_of
from autocompile.runtime.guards import Guard, Refusal
from autocompile.runtime.model_watch import Watch
from autocompile.runtime.structure import missing_class
from autocompile.runtime.weights import Weights

# What a record of another form leads to.
UNREADABLE = (AttributeError, LookupError, TypeError, ValueError)


def loaded_programs(
    opened: Opened, name: str, programs: Sequence[Program], model: Any, watch: Watch, device: torch.device
) -> list[tuple[Guard, Loaded]]:
    """What serves each of these programs of the runtime `name`, behind its guard.

    Raises what `AheadRuntime.load` raises, LibraryMissing where what the runtime needs cannot be imported, and one of
    UNREADABLE where their record cannot be read.
    """
    own = ahead(name)
    try:
        return [
            (Guard(program, model, device), own.load(program, opened.files(program.directory), model, watch))
            for program in programs
        ]
    except ImportError as fault:
        raise LibraryMissing(close(name, fault)) from fault


def packed_weights(manifest: Manifest, model: Any, check: WeightCheck) -> Weights | None:
    """The model's weights, compared with those that the programs have copies of; None if they have none."""
    if model is None or manifest.serving.start != "load" or not kind_of(manifest.plan).holds_weights(manifest.plan):
        return None
    samples = (manifest.weight_samples or None) if check == "sample" else None
    return Weights(model, manifest.weights, Watch(model, manifest.identity.attributes), samples)


def program_notes(manifest: Manifest, weights: Weights | None, check: WeightCheck) -> Iterator[str]:
    """What is to know of programs that serve: how weights were compared, which sizes they take, what lacks a class."""
    if weights and manifest.weight_samples and check == "sample":
        yield "of the model's weights, a sample of each tensor was compared with those that were packed"
    if manifest.plan.sizes:
        yield "the program takes calls of the sizes that it was made for, and no others"
    for name in filter(None, (missing_class(program.output_spec) for program in manifest.programs)):
        yield f"{name} cannot be imported here: outputs are dicts with its names"


class StandingBy:
    """Serves what the packed programs do not: other weights than they hold, or other sizes than they take.

    Compiled by `runtime`, on the model's own weights. It is loaded when it is first needed (`load`); where it cannot
    be, `eager` serves, which is counted.
    """

    def __init__(self, load: Callable[[], Server], runtime: str, eager: Server, tally: Tally) -> None:
        self._load, self._eager, self._tally = load, eager, tally
        self._own = Serving(runtime, "load")
        self._server: Server | None = None
        self._loading = threading.Lock()
        self.label = f"{runtime} on the model's own weights"

    @property
    def serving(self) -> Serving:
        """Its runtime's, until that turns out not to be loadable."""
        return self._own if self._server is None else self._server.serving

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        server = self._server
        if server is not None:
            return server(args, kwargs)
        with self._loading:
            if self._server is None:
                return self._first(args, kwargs)
        return self._server(args, kwargs)

    def _first(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What it gives for a call: loaded now, or eager, for good if it cannot be loaded at all."""
        try:
            self._server = self._load()
        except (NotLoadable, LibraryMissing, *UNREADABLE) as fault:
            self._server = self._eager
            self._tally.refused(Refusal("standby", f"{self.label} cannot be loaded: {fault}"))
        except WeightsDiffer as fault:  # they may fit again
            self._tally.refused(Refusal("standby", f"{self.label} cannot run on them: {fault}"))
            return self._eager(args, kwargs)
        self._load = _nothing  # lets go of what was held to load it
        return self._server(args, kwargs)


def _nothing() -> Server:
    raise AssertionError("it was loaded already")


@dataclass(frozen=True)
class Fallbacks:
    """What serves instead of programs: `eager` a model that is another one, `behind` calls that none was made for."""

    eager: Server
    behind: Server


def differing(standby: Standby, device: torch.device) -> str:
    """For what on this machine the program that stands by cannot run, or ""."""
    grave = grave_of(machine_mismatches(standby.requirements, device.type, "load", device.index))
    return grave[0].message if grave else ""


def load_standby(
    opened: Opened, standby: Standby, model: Any, device: torch.device, rest: Fallbacks, tally: Tally
) -> Server:
    """The program that stands by. Raises what `loaded_programs` raises, and NotLoadable on another kind of machine."""
    if found := differing(standby, device):
        raise NotLoadable(found)
    watch = Watch(model, standby.identity.attributes)
    name = standby.plan.runtime
    programs = loaded_programs(opened, name, standby.programs, model, watch, device)
    return ProgramServer(programs, watch, rest.behind, rest.eager, tally, Serving(name, "load"), name)
