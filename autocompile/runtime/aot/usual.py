"""What AOTInductor's programs usually do beside what their compiler does in the process itself. No torch.

Measured on CPUs; wide, as they only order what is tried before anything is known.
"""

from __future__ import annotations

from autocompile.space.usual import Feature, Usual, feature

NAME = "aot"

USUAL: dict[Feature, Usual] = {
    # Nothing is checked by Python at a call; exporting takes a quarter more, and another process loads what came of it.
    feature(runtime=NAME): Usual(-0.03, 0.1, cost=0.4, cost_deviation=0.3),
    # All weights are constants, so matrix products take them packed; that compiles no longer than on live weights.
    feature(freezing=True, runtime=NAME): Usual(-0.08, 0.2, cost=-0.1, cost_deviation=0.1),
    # Loops over sizes that are known are unrolled and tiled: of a small ConvNeXt's time 0.87.
    feature(sizes="fixed", runtime=NAME): Usual(-0.06, 0.08),
}
