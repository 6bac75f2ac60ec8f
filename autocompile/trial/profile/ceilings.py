"""What this device can do at best, measured: tables of peaks are sparse, wrong in places, and know no thread count."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from autocompile.core.profile import Ceilings
from autocompile.trial.clock.timing import CLOCKS

_LOOK_S = 0.15
_MATRIX = {"cpu": 1024, "cuda": 4096}
# Beyond what any cache of today holds, as a copy within a cache is another ceiling.
_COPIED_BYTES = {"cpu": 128 << 20, "cuda": 512 << 20}
_DISPATCHES = 500
_MULTIPLIED = ("float32", "float64", "float16", "bfloat16")


def measure_ceilings(device: str, dtype: str) -> Ceilings:
    """The best of repeated short looks, with the process's threads and precision settings; some 0.5 s together."""
    kind = getattr(torch, dtype if dtype in _MULTIPLIED else "float32")
    synchronize = CLOCKS[device]
    with torch.no_grad():
        size = _MATRIX[device]
        left, right = (torch.ones(size, size, dtype=kind, device=device) for _ in range(2))
        product = torch.empty(size, size, dtype=kind, device=device)
        product_s = _best_s(lambda: torch.mm(left, right, out=product), synchronize)
        source = torch.ones(_COPIED_BYTES[device], dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        copy_s = _best_s(lambda: target.copy_(source), synchronize)
        one = torch.ones(1, device=device)
        dispatches_s = _best_s(lambda: _repeated(one), synchronize)
    return Ceilings(
        flops_per_s=2 * size**3 / product_s,
        bytes_per_s=2 * source.numel() / copy_s,
        dispatch_us=dispatches_s / _DISPATCHES * 1e6,
        dtype=str(kind).removeprefix("torch."),
    )


def _repeated(one: torch.Tensor) -> None:
    for _ in range(_DISPATCHES):
        one.add_(1)


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
