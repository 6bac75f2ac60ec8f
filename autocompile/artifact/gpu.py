"""Which GPU something was packed for, and in what the one that is used here differs."""

from __future__ import annotations

from collections.abc import Iterator

from autocompile.core.manifest import Requirements
from autocompile.core.serving import Start
from autocompile.workload.gpu import gpu_kind


def of_the_gpu(needed: Requirements, start: Start, index: int | None) -> Iterator[tuple[str, str]]:
    """By a name, in words, what of the GPU differs: `capability`, `gpu`, or the `figures` alone.

    A compiled program runs on any GPU of its compute capability that has as many multiprocessors, for which some
    kernels are laid out. The compiler's cache is found by the GPU's name.
    """
    if not needed.capability:
        return
    here = gpu_kind(index)
    was = f"{needed.gpu} with {needed.multiprocessors} multiprocessors"
    now = f"{here.name} with {here.multiprocessors}"
    if needed.capability != here.capability:
        yield "capability", f"packed for compute capability {needed.capability}, and this is {here.capability}"
    elif not needed.gpu or (needed.gpu, needed.multiprocessors) == (here.name, here.multiprocessors):
        return
    elif start == "cache":
        yield "gpu", f"the compiler's cache is of {was}, and would not be found on {now}"
    elif needed.multiprocessors != here.multiprocessors:
        yield "gpu", f"packed for {was}, and this is {now}"
    else:
        yield "figures", f"the figures are of {needed.gpu}, and this is {here.name}"
