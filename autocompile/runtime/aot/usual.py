"""The usual effects of AOTInductor's programs, compared with the same compiler in the process. Does not import torch.

Measured on CPUs. The deviations are wide, because the values only order the trials before anything is measured.
"""

from __future__ import annotations

from autocompile.space.usual import Feature, Usual, feature

NAME = "aot"

USUAL: dict[Feature, Usual] = {
    # Python checks nothing at a call. Exporting takes a quarter more time, and another process loads the result.
    feature(runtime=NAME): Usual(-0.03, 0.1, cost=0.4, cost_deviation=0.3),
    # All weights are constants, so matrix products use them packed. Compiling takes no longer than on live weights.
    feature(freezing=True, runtime=NAME): Usual(-0.08, 0.2, cost=-0.1, cost_deviation=0.1),
    # Loops over known sizes are unrolled and tiled: a small ConvNeXt takes 0.87 of the time.
    feature(sizes="fixed", runtime=NAME): Usual(-0.06, 0.08),
}
