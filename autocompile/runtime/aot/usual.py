"""The usual effects of AOTInductor's programs, compared with the same compiler in the process. Does not import torch.

Measured on CPUs. The deviations are wide, because the values only order the trials before anything is measured.
"""

from __future__ import annotations

from autocompile.space.usual import Feature, Usual, feature

NAME = "aot"

USUAL: dict[Feature, Usual] = {
    # Python checks nothing at a call. The model is exported, and the program is also compiled and linked as a whole.
    feature(runtime=NAME): Usual(-0.15, 0.15, cost=0.8, cost_deviation=0.5),
    # All weights are constants, so matrix products use them packed. Compiling takes no longer than on live weights.
    feature(freezing=True, runtime=NAME): Usual(-0.08, 0.2, cost=-0.1, cost_deviation=0.2),
    # Loops over known sizes are unrolled and tiled: a small ConvNeXt takes 0.87 of the time.
    feature(sizes="fixed", runtime=NAME): Usual(-0.06, 0.08, cost=-0.25, cost_deviation=0.2),
}
