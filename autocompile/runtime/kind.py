"""What a runtime is to those who decide: its name, whether it is available, what it takes and what it can. No torch.

Its other half, which builds, packs and loads, is `runtime.base.Runtime`, in the module that `implementation` names.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Literal

from autocompile.core.outcome import Failure
from autocompile.core.plan import Plan
from autocompile.core.serving import Serving, Start
from autocompile.runtime.format import Format
from autocompile.space.dimension import Dimension, Values
from autocompile.space.surroundings import Surroundings
from autocompile.space.usual import Feature, Usual

OWN_DISTRIBUTION = "torch-autocompile"


@dataclass(frozen=True)
class Lines:
    """A runtime's part of the snippet: plain torch code, to paste without this library.

    `setup` defines `compiled` from a `model` that is already there; `helpers` are functions that `call` needs;
    `before_call` are lines within `run(*args, **kwargs)`, and `call` is the expression that it returns; `loss` is the
    one that gives the loss of a `batch` where a model is trained, from the user's function `loss`.
    """

    setup: tuple[str, ...] = ("compiled = model",)
    helpers: tuple[str, ...] = ()
    before_call: tuple[str, ...] = ()
    call: str = "compiled(*args, **kwargs)"
    loss: str = "loss(compiled, batch)"


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

    `akin`: another runtime with the same compiler; what is known of its candidates is expected of these, and `usual`
    has what differs. `implementation`: the module whose `RUNTIME` is its other half.
    `compiles`: when it compiles in a process that runs it: at the first `call`, or during the `build`, for the calls
    that it is given (in production, where none are known ahead, for the first); None if it does not. `recompiles`:
    whether a call of another size, or a changed attribute, may be compiled anew. `packs_as`: how it starts where an
    artifact holds it, None if it cannot be packed. `trains`: whether it can run a training step;
    `compiles_updates`: and can compile the optimizer's part of it.
    `draws_as_eager`: whether a trial can build it so that it draws eager's random numbers
    (`trial/check/randomness.py`), without which nothing that it makes of a model that draws some can be compared.
    `is_plain_compile`:
    what `torch.compile(model)` does, which is always tried. `warm_share`: what compiling again takes, of what it took,
    where the compiler finds the cache that it left; 1 if there is none. `takes`: those of the dimensions that all
    runtimes share which mean something to it. `has_own_threads`: whether it computes in threads of its own, and not in
    torch's.
    `cached_for_programs`: patterns of the names of what its cache holds for single programs; the rest is the machine's
    toolchain's, made once, and every new cache starts with it; `cached_for_machine`: of what is left out so, patterns
    of the names of files that are the toolchain's all the same. `arrays`: the module whose `load_arrays` serves NumPy
    arrays where torch is not imported, "" if that cannot be. `library`: the distribution that it needs beside torch,
    as pip names it, or ""; `extra`: this package's own that installs it, or "". `formats`: the files that it can write,
    which its library runs without this one.
    """

    name: str
    meaning: str
    implementation: str
    akin: str = ""
    is_plain_compile: bool = False
    compiles: Literal["call", "build"] | None = None
    warm_share: float = 1.0
    recompiles: bool = False
    packs_as: Literal["load", "cache"] | None = None
    trains: bool = False
    compiles_updates: bool = False
    draws_as_eager: bool = False
    takes: tuple[str, ...] = (
        *("amp", "float32", "memory_format", "threads", "batch"),
        *("optimizer", "activations", "micro_batches"),
    )
    has_own_threads: bool = False
    cached_for_programs: tuple[str, ...] = ("*",)
    cached_for_machine: tuple[str, ...] = ()
    arrays: str = ""
    library: str = ""
    extra: str = ""
    formats: tuple[Format, ...] = ()

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        """Those that only this runtime has."""
        return ()

    @property
    def usual(self) -> Mapping[Feature, Usual]:
        """What it and its own dimensions' values usually do, for the search to start from."""
        return {}

    def usual_in_training(self, _device_type: str) -> Mapping[Feature, Usual]:
        """What is otherwise for steps of training on such a device."""
        return {}

    def problem(self, _around: Surroundings) -> str:
        """Why it cannot be tried here and what to do, or ""."""
        return ""

    def notes(self, _around: Surroundings) -> tuple[tuple[str, str], ...]:
        """What its dimensions come to here that no choice's reason says: each a dimension and a sentence."""
        return ()

    @property
    def install(self) -> str:
        """The command that installs what it needs, or "" if that is torch alone."""
        if self.extra:
            return f'pip install "{OWN_DISTRIBUTION}[{self.extra}]"'
        return f"pip install {self.library}" if self.library else ""

    def version(self) -> str:
        """Its library's, as it is installed here; "" if that is torch's own, or is not installed."""
        try:
            return metadata.version(self.library) if self.library else ""
        except metadata.PackageNotFoundError:
            return ""

    def distribution(self, _device_type: str) -> str:
        """The one that brings its library for such a device, as pip names it; "" if that is torch alone."""
        return self.library

    def on_live_weights(self, _plan: Plan) -> Plan | None:
        """A plan of this runtime that does what this one, of any runtime, does, on the model's own weights.

        None if there is none.
        """
        return None

    def lacks(self, _device_type: str) -> str:
        """What this machine lacks to run it in production, or ""."""
        return ""

    def times_variants(self, _plan: Plan) -> bool:
        """Whether its compiler times variants and keeps the fastest, for which it needs the device to itself."""
        return False

    def holds_weights(self, _plan: Plan) -> bool:
        """Whether what it makes of a model has a copy of the weights.

        It then serves only while the model's are the same (`runtime/weights.py`).
        """
        return False

    def conflict(self, _values: Values, _around: Surroundings) -> str:
        """Why it cannot take these values of the dimensions that all runtimes share, or ""."""
        return ""

    def serves_one_thread(self, _plan: Plan) -> str:
        """Why what it builds serves only the thread that makes the first call, or "" if it serves all."""
        return ""

    def keeps_weights(self, plan: Plan) -> str:
        """Why later changes of the model's weights are neither followed nor seen, or "" if they are."""
        if plan.memory_format and not self.holds_weights(plan):
            return "weights in another memory format are copies: later changes of them are not followed"
        return ""

    def settings(self, _around: Surroundings) -> dict[str, Any]:
        """The settings of a plan of this runtime, with all its dimensions at their defaults."""
        return {}

    def fails_alike(self, failure: Failure, plan: Plan, other: Plan) -> bool:
        """Whether `other`, a plan of this runtime too, must fail for the reason that `plan` failed for."""
        if plan.batch != other.batch:
            return False
        return failure.cause == "model" or (failure.cause == "export" and plan.autocast == other.autocast)

    def warm_s(self, cold_s: float) -> float:
        """Seconds of compiling again with the cache that compiling left, which took `cold_s`."""
        return self.warm_share * cold_s

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
