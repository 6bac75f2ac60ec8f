"""Loads the programs of an artifact: the packed ones, and the standby for changed weights."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from autocompile.artifact.integrity import Opened
from autocompile.artifact.mismatch import grave_of, machine_mismatches
from autocompile.artifact.options import WeightCheck
from autocompile.artifact.serving import ProgramServer, Server, Tally
from autocompile.core.identity import Identity
from autocompile.core.manifest import Manifest, Standby
from autocompile.core.plan import Plan
from autocompile.core.program import Program
from autocompile.core.serving import Serving
from autocompile.runtime.base import Loaded, NotLoadable, WeightsDiffer
from autocompile.runtime.building import LibraryMissing, ahead, close
from autocompile.runtime.catalogue import kind_of
from autocompile.runtime.guards import Guard, Refusal
from autocompile.runtime.model_watch import Watch
from autocompile.runtime.outside import Outside
from autocompile.runtime.structure import missing_class
from autocompile.runtime.weights import Weights

# The exceptions that result from a record of an unexpected form.
UNREADABLE = (AttributeError, LookupError, TypeError, ValueError)


def loaded_programs(
    opened: Opened,
    name: str,
    programs: Sequence[Program],
    model: Any,
    watch: Watch,
    device: torch.device,
    *,
    weights: Weights | None = None,
    must_fit: bool = False,
) -> list[tuple[Guard, Loaded]]:
    """Load these programs of the runtime `name`, each with its guard.

    `weights`: the model's weights, if the programs have a copy of them; a thread compares them while the programs are
    loaded. If they `must_fit`, a difference is raised as WeightsDiffer, instead of any other fault.

    Raises what `AheadRuntime.load` raises, LibraryMissing if the runtime's library cannot be imported, and one of
    UNREADABLE if a record cannot be read.
    """
    own = ahead(name)
    with _comparing(weights, must_fit=must_fit):
        try:
            loaded = [own.load(program, opened.files(program.directory), model, watch) for program in programs]
        except ImportError as fault:
            raise LibraryMissing(close(name, fault)) from fault
    guards = [Guard(program, model, device) for program in programs]
    return list(zip(guards, map(weights.holding, loaded) if weights else loaded, strict=True))


@contextmanager
def _comparing(weights: Weights | None, *, must_fit: bool) -> Iterator[None]:
    """Compare the weights in a thread, which has ended afterwards."""
    if weights is None:
        yield
        return
    thread, fault = weights.begin(), None
    try:
        yield
    except Exception as other:  # raised below, unless the weights differ
        fault = other
    finally:
        thread.join()
    if must_fit and (differs := weights.difference()):
        raise WeightsDiffer(differs) from fault
    if fault is not None:
        raise fault


def packed_weights(manifest: Manifest, model: Any, check: WeightCheck) -> Weights | None:
    """Return the model's weights, to be compared with the copies in the programs; None if there are no copies."""
    if model is None or manifest.serving.start != "load" or not kind_of(manifest.plan).holds_weights(manifest.plan):
        return None
    samples = (manifest.weight_samples or None) if check == "sample" else None
    identity = manifest.identity
    return Weights(model, manifest.weights, watch_of(model, identity), samples, identity)


def copied_weights(plan: Plan, model: Any, watch: Watch) -> Weights | None:
    """Return the model's weights, if what is built from it in this process will have a copy of them; else None.

    Call this before it is built. Another memory format is made then, all other copies at the first call.
    """
    copies = kind_of(plan).copies_weights(plan)
    if not copies:
        return None
    weights = Weights(model, None, watch, only_images=copies == "images")
    if plan.memory_format:
        weights.difference()
    return weights


def watch_of(model: Any, identity: Identity) -> Watch:
    """Return what detects changes of a model, whose identity was recorded when its programs were packed."""
    return Watch(model, identity.attributes, outside=None if model is None else Outside(model, identity))


def program_notes(manifest: Manifest, weights: Weights | None, check: WeightCheck) -> Iterator[str]:
    """Yield notes on the programs: how weights were compared, which sizes they take, which class is missing."""
    if weights and manifest.weight_samples and check == "sample":
        yield "only a sample of each weight tensor was compared with the packed weights"
    if manifest.plan.sizes:
        yield "the program only takes calls of the sizes that it was compiled for"
    for name in filter(None, (missing_class(program.output_spec) for program in manifest.programs)):
        yield f"{name} cannot be imported here: outputs are dicts with its field names"


class StandingBy:
    """Serves calls that the packed programs cannot: with other weights than theirs, or other sizes than they take.

    Its programs were compiled by `runtime`, and use the model's own weights. They are loaded when they are first needed
    (`load`). If that fails, `eager` serves, which is counted.
    """

    def __init__(self, load: Callable[[], Server], runtime: str, eager: Server, tally: Tally) -> None:
        self._load, self._eager, self._tally = load, eager, tally
        self._own = Serving(runtime, "load")
        self._server: Server | None = None
        self._loading = threading.Lock()
        self.label = f"{runtime} on the model's own weights"

    @property
    def serving(self) -> Serving:
        """How it serves: by its runtime, unless that could not be loaded."""
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
        """Load the programs and make a call. If they can never be loaded, eager serves from now on."""
        try:
            self._server = self._load()
        except (NotLoadable, LibraryMissing, *UNREADABLE) as fault:
            self._server = self._eager
            self._tally.refused(Refusal("standby", f"{self.label} cannot be loaded: {fault}"))
        except WeightsDiffer as fault:  # the weights may fit again later
            self._tally.refused(Refusal("standby", f"{self.label} cannot run on them: {fault}"))
            return self._eager(args, kwargs)
        self._load = _nothing  # releases the references that were needed for loading
        return self._server(args, kwargs)


def _nothing() -> Server:
    raise AssertionError("it was loaded already")


@dataclass(frozen=True)
class Fallbacks:
    """What serves instead of programs: `eager` if the model has changed, `behind` for calls that no program takes."""

    eager: Server
    behind: Server


def differing(standby: Standby, device: torch.device) -> str:
    """Return why the standby cannot run on this machine, or ""."""
    grave = grave_of(machine_mismatches(standby.requirements, device.type, "load", device.index))
    return grave[0].message if grave else ""


def load_standby(
    opened: Opened, standby: Standby, model: Any, device: torch.device, rest: Fallbacks, tally: Tally
) -> Server:
    """Load the standby. Raises what `loaded_programs` raises, and NotLoadable on another kind of machine."""
    if found := differing(standby, device):
        raise NotLoadable(found)
    watch = watch_of(model, standby.identity)
    name = standby.plan.runtime
    programs = loaded_programs(opened, name, standby.programs, model, watch, device)
    return ProgramServer(programs, watch, rest.behind, rest.eager, tally, Serving(name, "load"), name)
