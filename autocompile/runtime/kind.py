"""A runtime as the search, the judge and the packer see it: name, availability and abilities. Does not import torch.

The other half of a runtime builds, packs and loads. It is a `runtime.base.Runtime` in the module that `implementation`
names.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Literal

from autocompile.core.candidate import Value
from autocompile.core.outcome import Failure
from autocompile.core.plan import Plan
from autocompile.core.serving import Serving, Start
from autocompile.runtime.format import Format
from autocompile.space.dimension import Dimension, Values
from autocompile.space.surroundings import Surroundings
from autocompile.space.usual import Feature, Usual

# Which weights a model that is built in the process has copies of.
Copies = Literal["", "images", "all"]

OWN_DISTRIBUTION = "torch-autocompile"


@dataclass(frozen=True)
class Lines:
    """A runtime's part of the snippet: plain torch code that is pasted into a program without autocompile.

    `setup` defines `compiled` from an existing `model`; `setup_to_train` does so where the model is trained, if that
    differs. `helpers` are functions that `call` needs. `before_call` are lines within `run(*args, **kwargs)`, and
    `call` is the expression that it returns. `loss` is the expression for the loss of a `batch` where a model is
    trained; it calls the user's function `loss`.
    """

    setup: tuple[str, ...] = ("compiled = model",)
    helpers: tuple[str, ...] = ()
    before_call: tuple[str, ...] = ()
    call: str = "compiled(*args, **kwargs)"
    loss: str = "loss(compiled, batch)"
    setup_to_train: tuple[str, ...] = ()


@dataclass(frozen=True)
class Compiled:
    """How long compiling took so far in this run, in seconds. The time for packing is estimated from it.

    `cold_s` is for the packed candidate, without a cache. `whole_s` is for the whole model, even if the candidate
    compiled only a part of it. `warm_s` is for the candidate with the cache that it left, or None if that was not
    measured yet. `one_off_s` is what this machine paid once for its compiler.
    """

    device_type: str
    cold_s: float
    whole_s: float
    warm_s: float | None = None
    one_off_s: float = 0.0


class Kind(ABC):
    """One runtime, as the search, the judge and the packer see it.

    Attributes:
        name: The runtime's name.
        meaning: A short description.
        implementation: The module whose `RUNTIME` is the other half of the runtime.
        akin: Another runtime with the same compiler, or "". What is known of its candidates is expected of this
            runtime's, too; `usual` has the differences.
        is_plain_compile: Whether this is `torch.compile(model)`, which is always tried.
        compiles: When it compiles in a process that runs the model: at the first `call`, or during the `build` for the
            calls given there (in production, where no calls are known in advance, for the first call). None if it does
            not compile there.
        warm_share: The time to compile again with the cache of an earlier compilation, as a share of the time of that
            compilation; 1 if there is no cache.
        recompiles: Whether a call of another size, or a changed attribute, may cause recompilation.
        packs_as: How it starts from an artifact; None if it cannot be packed.
        trains: Whether it can run a training step.
        compiles_updates: Whether it can also compile the optimizer's part of a training step.
        draws_as_eager: Whether a trial can build it so that it draws the same random numbers as eager
            (`trial/check/randomness.py`). Otherwise its outputs cannot be compared if the model draws random numbers.
        takes: The names of the shared dimensions that apply to this runtime.
        does_itself: The names of the shared dimensions whose values it implements itself. How eager does with such a
            value says little about it.
        has_own_threads: Whether it computes in its own threads instead of torch's.
        cached_for_programs: Name patterns of the files in its cache that belong to single programs. All other files
            belong to the machine's toolchain; they are made once, and every new cache starts with them.
        cached_for_machine: Name patterns of files that belong to the toolchain although `cached_for_programs` matches
            them.
        arrays: The module whose `load_arrays` serves NumPy arrays without importing torch, or "".
        library: The distribution that it needs in addition to torch, as pip names it, or "".
        extra: The extra of this package that installs `library`, or "".
        formats: The files that it can write and that its library runs without autocompile.
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
        *("amp", "float32", "attention", "memory_format", "threads", "batch"),
        *("optimizer", "activations", "micro_batches"),
    )
    does_itself: tuple[str, ...] = ()
    has_own_threads: bool = False
    cached_for_programs: tuple[str, ...] = ("*",)
    cached_for_machine: tuple[str, ...] = ()
    arrays: str = ""
    library: str = ""
    extra: str = ""
    formats: tuple[Format, ...] = ()

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        """The dimensions that belong to this runtime."""
        return ()

    @property
    def usual(self) -> Mapping[Feature, Usual]:
        """The usual effects of this runtime and of its dimensions' values. The search starts from them."""
        return {}

    def usual_in_training(self, _device_type: str) -> Mapping[Feature, Usual]:
        """Return where the usual effects differ for training steps on such a device."""
        return {}

    def problem(self, _around: Surroundings) -> str:
        """Return why the runtime cannot be tried here and what to do about it, or ""."""
        return ""

    def notes(self, _around: Surroundings) -> tuple[tuple[str, str], ...]:
        """Return remarks on its dimensions that belong to no single choice, as pairs of dimension and sentence."""
        return ()

    @property
    def install(self) -> str:
        """The command that installs what the runtime needs, or "" if it needs only torch."""
        if self.extra:
            return f'pip install "{OWN_DISTRIBUTION}[{self.extra}]"'
        return f"pip install {self.library}" if self.library else ""

    def version(self) -> str:
        """Return the version of its library as installed here, or "" if it is torch itself or is not installed."""
        try:
            return metadata.version(self.library) if self.library else ""
        except metadata.PackageNotFoundError:
            return ""

    def distribution(self, _device_type: str) -> str:
        """Return the distribution that provides its library for this device type, as pip names it, or "" for torch."""
        return self.library

    def on_live_weights(self, _plan: Plan) -> Plan | None:
        """Return a plan of this runtime that does what `_plan`, of any runtime, does, but on the model's own weights.

        Return None if there is none.
        """
        return None

    def lacks(self, _device_type: str) -> str:
        """Return what this machine lacks to run it in production, or ""."""
        return ""

    def times_variants(self, _plan: Plan) -> bool:
        """Return whether its compiler times variants and keeps the fastest. Then it must be alone on the device."""
        return False

    def holds_weights(self, _plan: Plan) -> bool:
        """Return whether the compiled model has a copy of the weights.

        If so, it serves only while the model's weights are the same (`runtime/weights.py`).
        """
        return False

    def conflict(self, _values: Values, _around: Surroundings) -> str:
        """Return why it cannot take these values of the shared dimensions, or ""."""
        return ""

    def serves_one_thread(self, _plan: Plan) -> str:
        """Return why a built model serves only the thread that makes the first call, or "" if it serves all threads."""
        return ""

    def copies_weights(self, plan: Plan) -> Copies:
        """Return of which weights a model that is built in the process itself has copies.

        It serves only while these are the same. In another memory format, parameters and buffers of four dimensions
        ("images") are copies.
        """
        return "all" if self.holds_weights(plan) else "images" if plan.memory_format else ""

    def settings(self, _around: Surroundings) -> dict[str, Any]:
        """Return the settings of a plan of this runtime with all its dimensions at their defaults."""
        return {}

    def fails_alike(self, failure: Failure, plan: Plan, other: Plan) -> bool:
        """Return whether `other`, also a plan of this runtime, must fail for the same reason as `plan`."""
        if plan.batch != other.batch:
            return False
        return failure.cause == "model" or (failure.cause == "export" and plan.autocast == other.autocast)

    def remedy(self, _failure: Failure, _values: Values) -> dict[str, Value]:
        """Return the values to change in a candidate that failed, which may avoid this failure, or {}."""
        return {}

    def warm_s(self, cold_s: float) -> float:
        """Return the seconds that compiling takes with the cache of an earlier compilation that took `cold_s`."""
        return self.warm_share * cold_s

    def packing_s(self, compiled: Compiled) -> float:
        """Return the seconds that packing takes, apart from loading the model and checking.

        By default it compiles once more.
        """
        return compiled.cold_s

    def lines(self, _plan: Plan) -> Lines:
        """Return its part of the snippet."""
        return Lines()

    @property
    def unpacked(self) -> Serving:
        """How the configuration alone starts, without an artifact."""
        start: Start = "compile" if self.compiles else "none"
        return Serving(self.name, start)
