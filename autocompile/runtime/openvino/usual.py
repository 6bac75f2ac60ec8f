"""The usual effects of OpenVINO. Does not import torch.

Measured with small networks on a CPU with AVX-512 and bfloat16 instructions: 0.3 to 0.8 of eager's time, and half of
that in bfloat16, which is open only if the processor has instructions for it. What is usual for autocast does not apply
here, because the weights are converted once. A trial exports, converts and compiles in some 1 to 5 s.
"""

from __future__ import annotations

from autocompile.space.usual import Feature, Usual, feature

NAME = "openvino"

USUAL: dict[Feature, Usual] = {
    feature(runtime=NAME): Usual(-0.6, 0.5, cost=1.4, cost_deviation=0.2),
    feature(amp="bf16", runtime=NAME): Usual(-1.0, 0.5, cost=-0.2),
    feature(amp="fp16", runtime=NAME): Usual(-1.0, 0.5, cost=-0.2),
    # Memory is planned in advance, and no shapes are computed: 0.85 to 1.0 of the time. Only one size is verified.
    feature(sizes="fixed", runtime=NAME): Usual(-0.07, 0.08, cost=-0.4, cost_deviation=0.15),
}
