"""`torch.compile`, as the search, the judge and the packer see it. Does not import torch."""

from __future__ import annotations

from typing import Any

from autocompile.compilers import c_compiler, cpp_compiler, python_headers
from autocompile.core.candidate import Value
from autocompile.core.outcome import Failure
from autocompile.core.plan import Plan
from autocompile.core.serde import to_plain
from autocompile.runtime.compiler_options import times_variants
from autocompile.runtime.inductor.dimensions import DIMENSIONS, LAYOUT, NAME
from autocompile.runtime.inductor.settings import Settings, settings_of
from autocompile.runtime.inductor.snippet import lines_of
from autocompile.runtime.inductor.usual import USUAL, USUAL_IN_TRAINING_ON_CPU
from autocompile.runtime.kind import Compiled, Copies, Kind, Lines
from autocompile.space.dimension import Dimension, Values
from autocompile.space.surroundings import Surroundings
from autocompile.space.usual import Feature, Usual

# The estimated time to compile again from a warm cache, until it is measured: some seconds plus this share of the time
# that compiling took.
_WARM_S, _WARM_SHARE = 2.0, 0.15
_NO_CPP = "there is no C++ compiler, which torch needs to compile and to use its cache"
_NO_C = "there is no C compiler (CC, gcc or clang), which Triton needs to build the code that launches its kernels"
_NO_HEADERS = (
    "Python's headers (Python.h), which Triton needs to build the code that launches its kernels, are missing; "
    "install python3-dev"
)

_ONE_THREAD = (
    "its CUDA graphs belong to the thread that makes the first call, which compiles it; calls from other threads are "
    "served eager"
)


class InductorKind(Kind):
    """Compiled by Dynamo and Inductor in the process itself, at the first calls."""

    name = NAME
    meaning = "torch.compile, in the process itself"
    implementation = "autocompile.runtime.inductor.runtime"
    is_plain_compile = True
    compiles = "call"
    warm_share = _WARM_SHARE
    recompiles = True
    packs_as = "cache"
    trains = True
    compiles_updates = True
    draws_as_eager = True
    cached_for_programs = ("fxgraph", "aotautograd", "triton", "locks", "*.main.*", "*.py")
    # Triton's own C library, which loads kernels. Triton builds it when it launches the first kernel.
    cached_for_machine = ("cuda_utils.*.so", "cuda_utils.so")

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        return DIMENSIONS

    @property
    def usual(self) -> dict[Feature, Usual]:
        return USUAL

    def usual_in_training(self, device_type: str) -> dict[Feature, Usual]:
        return USUAL_IN_TRAINING_ON_CPU if device_type == "cpu" else {}

    def problem(self, around: Surroundings) -> str:
        return around.compiler_problem

    def settings(self, around: Surroundings) -> dict[str, Any]:
        # A training step of an RNN would be unrolled over time: minutes to compile, and at most slightly faster.
        return to_plain(Settings(recurrent=around.has_recurrence and around.training is None))

    def notes(self, around: Surroundings) -> tuple[tuple[str, str], ...]:
        if around.device_type != "cpu":
            return ()
        return (("mode", "a CPU has no CUDA graphs, so reduce-overhead is the same as default"),)

    def lacks(self, device_type: str) -> str:
        if device_type == "cpu":
            return "" if cpp_compiler() else _NO_CPP
        if not c_compiler():
            return _NO_C
        return "" if python_headers() else _NO_HEADERS

    def serves_one_thread(self, plan: Plan) -> str:
        return _ONE_THREAD if settings_of(plan).options.get("triton.cudagraphs") else ""

    def times_variants(self, plan: Plan) -> bool:
        return times_variants(plan)

    def copies_weights(self, plan: Plan) -> Copies:
        """With freezing, the weights are constants of the compiled code."""
        return "all" if settings_of(plan).options.get("freezing") else super().copies_weights(plan)

    def warm_s(self, cold_s: float) -> float:
        return min(_WARM_S + _WARM_SHARE * cold_s, cold_s)

    def packing_s(self, compiled: Compiled) -> float:
        """Packing compiles from the cache."""
        warm_s = self.warm_s(compiled.cold_s) if compiled.warm_s is None else compiled.warm_s
        return min(warm_s, compiled.cold_s)

    def lines(self, plan: Plan) -> Lines:
        return lines_of(plan)

    def remedy(self, failure: Failure, values: Values) -> dict[str, Value]:
        is_open = values.get(LAYOUT) and values["scope"] != "optimizer"
        return {LAYOUT: False} if failure.kind == "wrong_result" and is_open else {}

    def fails_alike(self, failure: Failure, plan: Plan, other: Plan) -> bool:
        """Dynamo traces a model before it uses a backend or its options, so these make no difference.

        The traced parts make a difference. Whether sizes and numbers may vary depends on how the plan marks them.
        """
        own, others = settings_of(plan), settings_of(other)
        if (_parts(own), plan.recomputed) != (_parts(others), other.recomputed):
            return False
        if plan.optimizer == "compiled" != other.optimizer:  # the optimizer's step may be what failed
            return False
        if failure.cause == "skipped":
            return True
        if failure.cause in ("state changes", "argument changes"):
            # A plan that may let numbers vary and still recompiles also recompiles if they may not vary.
            return own.dynamic is not False or others.dynamic is False
        if failure.cause == "untraceable" and plan.autocast != other.autocast:
            return False
        return _sizes(plan) == _sizes(other)


def _parts(settings: Settings) -> tuple[object, ...]:
    return settings.scope, settings.with_loss, settings.left_eager, settings.only_updates


def _sizes(plan: Plan) -> tuple[object, ...]:
    settings = settings_of(plan)
    return settings.dynamic, settings.ranges, settings.buckets, plan.batch, plan.micro_batches


KIND = InductorKind()
