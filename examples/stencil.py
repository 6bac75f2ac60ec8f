"""A reaction-diffusion step (Gray-Scott) as a plain function.

It makes many small passes over memory, which fusing the operators saves.

autocompile tune examples/stencil.py --budget 90s --output rec-stencil/
"""

import torch


def laplacian(field: torch.Tensor) -> torch.Tensor:
    """Return the five-point Laplacian on a torus; (height, width) in and out."""
    return (
        torch.roll(field, 1, 0)
        + torch.roll(field, -1, 0)
        + torch.roll(field, 1, 1)
        + torch.roll(field, -1, 1)
        - 4 * field
    )


def step(u: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Do one explicit Euler step of two concentrations, (height, width) each."""
    feed, kill, diffuse_u, diffuse_v = 0.055, 0.062, 0.16, 0.08
    reaction = u * v * v
    du = diffuse_u * laplacian(u) - reaction + feed * (1 - u)
    dv = diffuse_v * laplacian(v) + reaction - (feed + kill) * v
    return u + du, v + dv


torch.manual_seed(0)
model = step
inputs = (torch.rand(1024, 1024), torch.rand(1024, 1024) * 0.25)
