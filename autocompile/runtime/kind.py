"""What a runtime is to those who decide: its name, whether it is available, what it takes and what it can. No torch.

Its other half, which builds, packs and loads, is `runtime.base.Runtime`, in the module that `implementation` names.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Literal

from autocompile.core.outcome import Failure
from autocompile.core.plan import Plan
from autocompile.core.serving import Serving, Start
from autocompile.space.dimension import Dimension
from autocompile.space.surroundings import Surroundings
from autocompile.space.usual import Feature, Usual


@dataclass(frozen=True)
class Lines:
    """A runtime's part of the snippet: plain torch code, to paste without this library.

    `setup` defines `compiled` from a `model` that is already there; `helpers` are functions that `call` needs;
    `before_call` are lines within `run(*args, **kwargs)`, and `call` is the expression that it returns.
    """

    setup: tuple[str, ...] = ("compiled = model",)
    helpers: tuple[str, ...] = ()
    before_call: tuple[str, ...] = ()
    call: str = "compiled(*args, **kwargs)"


@dataclass(frozen=True)
class Compiled:
    """What compiling took so far in this run, in seconds: packing is estimated by it.

    `cold_s`: the candidate that is packed, without a cache; `whole_s`: the whole model, whatever the candidate compiled
    of it; `warm_s`: the candidate from the cache that it left, None while that was not seen; `one_off_s`: what this
    machine paid once for its compiler.
    """

    device_type: str
    cold_s: float
    whole_s: float
    warm_s: float | None = None
    one_off_s: float = 0.0


class Kind(ABC):
    """One runtime, as the search, the judge and the packer see it.

    `implementation`: the module whose `RUNTIME` is its other half. `is_candidate`: whether it is searched over.
    `compiles`: when it compiles in a process that runs it: at the first `call`, or during the `build`, for the calls
    that it is given (in production, where none are known ahead, for the first); None if it does not. `recompiles`:
    whether a call of another size, or a changed attribute, may be compiled anew. `packs_as`: how it starts where an
    artifact holds it, None if it cannot be packed. `trains`: whether it can run a training step. `is_plain_compile`:
    what `torch.compile(model)` does, which is always tried. `warm_share`: what compiling again takes, of what it took,
    where the compiler finds the cache that it left; 1 if there is none. `holds_weights`: whether what it makes of a
    model has a copy of the weights; it then serves only while the model's are the same (`runtime/weights.py`).
    `cached_for_programs`: patterns of the names of what its cache holds for single programs; the rest is the machine's
    toolchain's, made once, and every new cache starts with it. `library`: the distribution that it needs beside torch,
    as pip names it, or "".
    """

    name: str
    meaning: str
    implementation: str
    is_candidate: bool = True
    is_plain_compile: bool = False
    compiles: Literal["call", "build"] | None = None
    warm_share: float = 1.0
    recompiles: bool = False
    packs_as: Literal["load", "cache"] | None = None
    trains: bool = False
    holds_weights: bool = False
    cached_for_programs: tuple[str, ...] = ("*",)
    library: str = ""

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        """Those that only this runtime has."""
        return ()

    @property
    def usual(self) -> Mapping[Feature, Usual]:
        """What it and its own dimensions' values usually do, for the search to start from."""
        return {}

    def problem(self, _around: Surroundings) -> str:
        """Why it cannot be tried here and what to do, or ""."""
        return ""

    def notes(self, _around: Surroundings) -> tuple[tuple[str, str], ...]:
        """What its dimensions come to here that no choice's reason says: each a dimension and a sentence."""
        return ()

    def version(self) -> str:
        """Its library's, as it is installed here; "" if that is torch's own, or is not installed."""
        try:
            return metadata.version(self.library) if self.library else ""
        except metadata.PackageNotFoundError:
            return ""

    def lacks(self, _device_type: str) -> str:
        """What this machine lacks to run it in production, or ""."""
        return ""

    def keeps_weights(self, plan: Plan) -> str:
        """Why later changes of the model's weights are not followed, or "" if they are."""
        if plan.memory_format:
            return "weights in another memory format are copies: later changes of them are not followed"
        return ""

    def fails_alike(self, _failure: Failure, _plan: Plan, _other: Plan) -> bool:
        """Whether `other`, a plan of this runtime too, must fail for the reason that `plan` failed for."""
        return False

    def packs(self, _plan: Plan) -> Plan | None:
        """A plan of this runtime that does what one of another runtime does, or None if it packs no such plan.

        Settings are asked for as plain data, as rooms know nothing of each other.
        """
        return None

    def packing_s(self, compiled: Compiled) -> float:
        """Seconds that packing takes, beside loading the model and checking: by default it is compiled once more."""
        return compiled.cold_s

    def lines(self, _plan: Plan) -> Lines:
        """Its part of the snippet."""
        return Lines()

    @property
    def unpacked(self) -> Serving:
        """How the configuration alone starts."""
        start: Start = "compile" if self.compiles else "none"
        return Serving(self.name, start)
