"""AOTInductor, as those who decide see it. No torch."""

from __future__ import annotations

from msgspec.structs import replace

from autocompile.core.plan import Plan
from autocompile.core.serde import to_plain
from autocompile.runtime.aot.settings import Settings
from autocompile.runtime.kind import Compiled, Kind
from autocompile.space.surroundings import Surroundings

# AOTInductor is the compiler of these plans, run ahead. Their settings are read here alone, as plain data.
_SAME_COMPILER = "inductor"
# Of the compiler's options those that a package cannot have: constants stay outside, graphs are recorded at run time.
_NOT_IN_A_PACKAGE = ("freezing", "triton.cudagraphs")


# Export and the C++ around the kernels, some 11 s on 2 cores, and the kernels, which on a CPU are compiled as one file
# (of a MobileNetV2, a transformer, a small CNN and a stencil: 0.3 to 0.5 of the time that compiling them took in
# process).
_PROGRAM_S = 11.0
_KERNELS_SHARE = {"cpu": 0.5}


class AheadOfTimeKind(Kind):
    """A program that is compiled ahead, and runs on the model's own weights. It serves just the calls it was made for.

    Not searched over: what was found for the compiler in the process itself is packed as such a program.
    """

    name = "aot"
    meaning = "a program compiled ahead by AOTInductor, which starts without a compiler"
    implementation = "autocompile.runtime.aot.runtime"
    is_candidate = False
    compiles = "build"
    packs_as = "load"

    def problem(self, around: Surroundings) -> str:
        return around.compiler_problem

    def packs(self, plan: Plan) -> Plan | None:
        if plan.runtime != _SAME_COMPILER:
            return None
        options = plan.settings.get("options", {})
        settings = Settings(
            options={name: value for name, value in options.items() if name not in _NOT_IN_A_PACKAGE},
            frozen="freezing" in options,
            padded=bool(plan.settings.get("buckets")),
        )
        return replace(plan, runtime=self.name, settings=to_plain(settings))

    def packing_s(self, compiled: Compiled) -> float:
        """A program is compiled whole. Where the compiler was never used, there are headers to precompile for it."""
        kernels_s = compiled.whole_s * _KERNELS_SHARE.get(compiled.device_type, 1.0)
        return compiled.one_off_s + _PROGRAM_S + kernels_s


KIND = AheadOfTimeKind()
