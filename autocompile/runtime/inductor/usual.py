"""The usual effects of `torch.compile` and its settings. Does not import torch.

Measured on CPUs, and from publications for GPUs. The deviations are wide, because the values only order the trials
before anything is measured.
"""

from __future__ import annotations

from autocompile.runtime.inductor.dimensions import NAME
from autocompile.space.usual import Feature, Usual, feature

# Matrix products, which no compiler speeds up, are a larger part of a step than of a call. Compiling takes longer,
# because it includes the backward pass.
USUAL_IN_TRAINING_ON_CPU: dict[Feature, Usual] = {
    feature(runtime=NAME): Usual(-0.03, 0.2, cost=2.0),
    feature(scope="with-loss"): Usual(0.0, 0.08, cost=0.05),
    # A transformer, a vision transformer and a ResNet gained 6% to 20% more from compiling than in float32.
    feature(amp="bf16", runtime=NAME): Usual(-0.1, 0.12, cost_deviation=0.1),
    # What this mode tries for matrix products on a CPU needs constant weights.
    feature(amp="bf16", mode="max-autotune-no-cudagraphs"): Usual(0.0, 0.1, cost_deviation=0.1),
}
USUAL: dict[Feature, Usual] = {
    feature(runtime=NAME): Usual(-0.3, 0.5, cost=1.9, cost_deviation=0.6),
    feature(mode="max-autotune"): Usual(0.0, 0.15, cost=0.7),
    feature(mode="max-autotune-no-cudagraphs"): Usual(0.0, 0.15, cost=0.7),
    feature(mode="reduce-overhead"): Usual(-0.1, 0.4, cost=0.1),
    feature(dynamic="dynamic"): Usual(0.05, 0.1, cost=0.2),
    feature(dynamic="marked"): Usual(0.02, 0.1, cost=0.1),
    feature(dynamic="static"): Usual(0.0, 0.1, cost=0.4),
    feature(dynamic="buckets"): Usual(0.02, 0.15, cost=0.6),
    feature(freezing=True): Usual(-0.12, 0.1, cost=0.1),
    feature(scope="with-loss"): Usual(-0.01, 0.08, cost=0.05),
    # The optimizer's step alone has a small part of the gain and of the compile time of the whole.
    feature(scope="optimizer"): Usual(0.05, 0.1, cost=-0.8),
    feature(scope="blocks"): Usual(0.08, 0.1, cost=-0.8),
    feature(scope="hottest-1"): Usual(0.2, 0.12, cost=-0.3),
    feature(scope="hottest-2"): Usual(0.2, 0.12, cost=-0.3),
    feature(scope="around-breaks"): Usual(0.02, 0.15),
    # Only tried where candidates without it fail: then it makes all the difference.
    feature(layout_optimization=False): Usual(0.05, 0.1),
    feature(amp="bf16", layout_optimization=False): Usual(0.0, 0.7, cost_deviation=0.1),
    # Recomputation costs time.
    feature(memory_budget="half"): Usual(0.15, 0.15, cost=0.2, memory=-0.3, memory_deviation=0.2),
    # Casts are fused into compiled kernels. Frozen weights are converted once, into the layout of the matrix unit.
    feature(amp="bf16", runtime=NAME): Usual(-0.05, 0.2, cost_deviation=0.1),
    feature(amp="bf16", freezing=True): Usual(-0.1, 0.3, cost_deviation=0.1),
    feature(amp="bf16", mode="max-autotune-no-cudagraphs"): Usual(-0.05, 0.2, cost_deviation=0.1),
    # Frozen weights are constants, so blocks cannot share a program.
    feature(scope="blocks", freezing=True): Usual(0.15, 0.15, cost=0.9, cost_deviation=0.1),
    # The compiler chooses the layout of convolutions itself.
    feature(memory_format="channels_last", runtime=NAME): Usual(0.1, 0.15, cost_deviation=0.1),
}
