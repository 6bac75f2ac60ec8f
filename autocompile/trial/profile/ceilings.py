"""Measure the peak performance of this device.

Published tables of peaks are incomplete, partly wrong, and do not consider the number of threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from autocompile.core.profile import Ceilings
from autocompile.trial.clock.devices import DEVICES
from autocompile.workload.settings import current_settings
from autocompile.workload.tf32 import TF32, products_in_tf32

_LOOK_S = 0.15
_DISPATCHES = 500
_MULTIPLIED = ("float32", "float64", "float16", "bfloat16")


def measure_ceilings(device: str, dtype: str) -> Ceilings:
    """Return the best of repeated short measurements, with the process's threads and precision settings.

    All measurements together take some 0.5 s.
    """
    kind = getattr(torch, dtype if dtype in _MULTIPLIED else "float32")
    size, synchronize = DEVICES[device].matrix, DEVICES[device].synchronize
    with torch.no_grad():
        left, right = (torch.ones(size, size, dtype=kind, device=device) for _ in range(2))
        product = torch.empty(size, size, dtype=kind, device=device)
        product_s = _best_s(lambda: torch.mm(left, right, out=product), synchronize)
        convolved_s = 0.0
        if convolves_in_tf32(device, kind):
            with products_in_tf32():
                convolved_s = _best_s(lambda: torch.mm(left, right, out=product), synchronize)
        source = torch.ones(DEVICES[device].copied_bytes, dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        copy_s = _best_s(lambda: target.copy_(source), synchronize)
        element = torch.ones(1, device=device)
        dispatches_s = _best_s(lambda: _repeated(element), synchronize)
    return Ceilings(
        flops_per_s=2 * size**3 / product_s,
        bytes_per_s=2 * source.numel() / copy_s,
        dispatch_us=dispatches_s / _DISPATCHES * 1e6,
        dtype=str(kind).removeprefix("torch."),
        convolution_flops_per_s=2 * size**3 / convolved_s if convolved_s else 0.0,
    )


def convolves_in_tf32(device: str, dtype: torch.dtype) -> bool:
    """Whether convolutions of such tensors are computed in TF32 but matrix products are not, which is torch's default.

    Each backend has its own precision setting. If this version of torch does not report it, the older flags are used.
    """
    if device != "cuda" or dtype != torch.float32:
        return False
    settings = current_settings()
    matmul, convolution = (settings.precisions.get(name, "") for name in ("cuda.matmul", "cudnn.conv"))
    multiplies = matmul == TF32 if matmul else settings.matmul_precision not in ("", "highest")
    return not multiplies and (convolution == TF32 if convolution else bool(settings.cudnn_tf32))


def _repeated(element: torch.Tensor) -> None:
    for _ in range(_DISPATCHES):
        element.add_(1)


def _best_s(work: Callable[[], object], synchronize: Callable[[], None]) -> float:
    work()
    synchronize()
    best, ends = float("inf"), time.perf_counter() + _LOOK_S
    while True:
        started = time.perf_counter()
        work()
        synchronize()
        now = time.perf_counter()
        best = min(best, now - started)
        if now > ends:
            return best
