"""The usual effects of ONNX Runtime and its settings. Does not import torch.

Measured on CPUs. The deviations are wide, because the values only order the trials before anything is measured.
"""

from __future__ import annotations

from autocompile.runtime.onnxruntime.dimensions import NAME
from autocompile.space.usual import Feature, Usual, feature

USUAL: dict[Feature, Usual] = {
    feature(runtime=NAME): Usual(-0.45, 0.5, cost=1.65, cost_deviation=0.2),
    feature(graph_optimization="extended"): Usual(0.25, 0.35),
    # Only one size is verified.
    feature(sizes="fixed", runtime=NAME): Usual(-0.03, 0.05, cost=-0.35, cost_deviation=0.15),
    # A call of one millisecond gains a fifth; a call of ten milliseconds gains nothing.
    feature(spinning=True): Usual(-0.03, 0.06),
}
