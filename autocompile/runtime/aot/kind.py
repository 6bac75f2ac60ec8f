"""AOTInductor, as those who decide see it. No torch."""

from __future__ import annotations

from autocompile.runtime.kind import Kind
from autocompile.space.surroundings import Surroundings


class AheadOfTime(Kind):
    """A program that is compiled ahead, and runs on the model's own weights. It serves just the calls it was made for.

    Not searched over: what was found for the compiler in the process itself is packed as such a program.
    """

    name = "aot"
    meaning = "a program compiled ahead by AOTInductor, which starts without a compiler"
    implementation = "autocompile.runtime.aot.runtime"
    is_candidate = False
    packs_as = "load"

    def problem(self, around: Surroundings) -> str:
        return around.compiler_problem


KIND = AheadOfTime()
