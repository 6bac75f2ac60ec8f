"""The usual effects of ONNX Runtime and its settings. Does not import torch.

Measured on CPUs. The deviations are wide, because the values only order the trials before anything is measured.
"""

from __future__ import annotations

from autocompile.runtime.onnxruntime.dimensions import NAME
from autocompile.space.usual import Feature, Usual, feature

USUAL: dict[Feature, Usual] = {
    feature(runtime=NAME): Usual(-0.4, 0.5, cost=1.0),
    feature(graph_optimization="extended"): Usual(0.25, 0.35),
    feature(sizes="fixed", runtime=NAME): Usual(-0.01, 0.05),
    # A call of one millisecond gains a fifth; a call of ten milliseconds gains nothing.
    feature(spinning=True): Usual(-0.03, 0.06),
}
