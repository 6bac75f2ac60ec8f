"""What OpenVINO usually does. No torch.

Measured on a CPU with AVX-512 and bfloat16 instructions, of small networks: 0.3 to 0.8 of eager's time, and
half of that in bfloat16, which is open only where the processor has instructions for it. What is said of autocast does
not hold: weights are converted once. A trial exports, converts and compiles, some 1 to 5 s.
"""

from __future__ import annotations

from autocompile.space.usual import Feature, Usual, feature

NAME = "openvino"

USUAL: dict[Feature, Usual] = {
    feature(runtime=NAME): Usual(-0.5, 0.5, cost=0.9),
    feature(amp="bf16", runtime=NAME): Usual(-1.0, 0.5, cost=-0.2),
    feature(amp="fp16", runtime=NAME): Usual(-1.0, 0.5, cost=-0.2),
    # Memory is planned ahead, and no shape computed: of a small decoder's time 0.92, of a BERT's 0.96.
    feature(sizes="fixed", runtime=NAME): Usual(-0.05, 0.06),
}
