"""Tell whether two tensors have the same values, apart from rounding."""

from __future__ import annotations

import torch

_SAME = 1e-3


def same_values(output: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Return whether shapes and dtypes agree, and each element within 0.1% of the root mean square of `wanted`.

    Elements are compared one by one, as an effect on a few of them would not show in a mean over all.
    """
    if output.shape != wanted.shape or output.dtype != wanted.dtype:
        return False
    if not wanted.is_floating_point() and not wanted.is_complex():
        return torch.equal(output, wanted)
    if not wanted.numel():
        return True
    scale = float(wanted.nan_to_num(0, 0, 0).abs().double().pow(2).mean().sqrt())
    alike = output.eq(wanted) | (output.isnan() & wanted.isnan())
    error = float((output - wanted).masked_fill(alike, 0).abs().double().max())
    return error <= max(_SAME, 10 * torch.finfo(wanted.dtype).eps) * max(scale, 1e-30)
