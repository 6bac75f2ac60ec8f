"""AOTInductor, as the search, the judge and the packer see it. Does not import torch."""

from __future__ import annotations

from msgspec.structs import replace

from autocompile.core.outcome import Failure
from autocompile.core.plan import Plan
from autocompile.runtime.aot.settings import settings_of
from autocompile.runtime.aot.snippet import lines_of
from autocompile.runtime.aot.usual import NAME, USUAL
from autocompile.runtime.compiler_options import FREEZING, MODE, mode_options, times_variants
from autocompile.runtime.format import Format
from autocompile.runtime.kind import Compiled, Kind, Lines
from autocompile.space.dimension import Dimension, Values
from autocompile.space.surroundings import Surroundings
from autocompile.space.usual import Feature, Usual

# The time for the export and the C++ code around the kernels, some 11 s on 2 cores, and for the kernels. On a CPU all
# kernels are compiled as one file. For a MobileNetV2, a transformer, a small CNN and a stencil this took 0.3 to 0.5 of
# the time that compiling in the process took.
_PROGRAM_S = 11.0
_KERNELS_SHARE = {"cpu": 0.5}

_PACKAGE = Format(
    name="pt2",
    meaning="a package of torch's AOTInductor, compiled for this kind of machine",
    file="model.pt2",
    implementation="autocompile.runtime.aot.written",
)


class AheadOfTimeKind(Kind):
    """A program that is compiled ahead of time. It serves only the calls that it was made for.

    It runs on the model's own weights or, with `freezing`, on constants that were made from them. The constants are in
    a file next to the program's code, which all processes that load it share.
    """

    name = NAME
    meaning = "a program compiled ahead by AOTInductor, which starts without a compiler"
    implementation = "autocompile.runtime.aot.runtime"
    akin = "inductor"
    compiles = "build"
    packs_as = "load"
    takes = ("amp", "float32", "attention", "memory_format", "threads", "batch", "sizes")
    formats = (_PACKAGE,)

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        return MODE, FREEZING

    @property
    def usual(self) -> dict[Feature, Usual]:
        return USUAL

    def problem(self, around: Surroundings) -> str:
        return around.compiler_problem

    def conflict(self, values: Values, around: Surroundings) -> str:
        """Options that copy the weights into another layout need freezing; CUDA graphs need fixed sizes."""
        options = mode_options(str(values["mode"]), around)
        is_of_one_size = values["sizes"] == "fixed" or (around.signature_count == 1 and around.free_batch is False)
        if "triton.cudagraphs" in options and not is_of_one_size:
            return "a captured CUDA graph has the sizes of one call: it needs sizes=fixed"
        if values["freezing"]:
            return ""
        if values["memory_format"] != "preserve":
            return "a program on the model's own weights must use the model's memory format"
        if "max_autotune" in options and around.device_type == "cpu" and around.is_module:
            return "tuned matrix products on a CPU have copies of the weights: they need freezing=True"
        return ""

    def times_variants(self, plan: Plan) -> bool:
        return times_variants(plan)

    def holds_weights(self, plan: Plan) -> bool:
        return settings_of(plan).is_frozen

    def on_live_weights(self, plan: Plan) -> Plan:
        """Drop the settings, the memory format and fixed sizes: tuned kernels would have copies of the weights."""
        return replace(plan, runtime=self.name, settings={}, memory_format="", sizes="")

    def fails_alike(self, failure: Failure, plan: Plan, other: Plan) -> bool:
        """If a program cannot be captured, the cause is the model's behavior, whatever options it was compiled with."""
        if failure.cause == "capture":
            return settings_of(other).is_captured and (plan.batch, plan.sizes) == (other.batch, other.sizes)
        return super().fails_alike(failure, plan, other)

    def packing_s(self, compiled: Compiled) -> float:
        """The whole program is compiled again. If the compiler was never used before, it first precompiles headers."""
        kernels_s = compiled.whole_s * _KERNELS_SHARE.get(compiled.device_type, 1.0)
        return compiled.one_off_s + _PROGRAM_S + kernels_s

    def lines(self, plan: Plan) -> Lines:
        return lines_of(plan)


KIND = AheadOfTimeKind()
