"""What ONNX Runtime and its settings usually do. No torch.

Measured on CPUs; wide, as they only order what is tried before anything is known.
"""

from __future__ import annotations

from autocompile.runtime.onnxruntime.dimensions import NAME
from autocompile.space.usual import Feature, Usual, feature

USUAL: dict[Feature, Usual] = {
    feature(runtime=NAME): Usual(-0.4, 0.5, cost=1.0),
    feature(graph_optimization="extended"): Usual(0.25, 0.35),
    feature(sizes="fixed", runtime=NAME): Usual(-0.01, 0.05),
    # A call of a millisecond gains a fifth, one of ten nothing.
    feature(spinning=True): Usual(-0.03, 0.06),
}
