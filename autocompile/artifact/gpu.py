"""Compares the GPU that an artifact was packed for with the one that is used here."""

from __future__ import annotations

from collections.abc import Iterator

from autocompile.core.manifest import Requirements
from autocompile.core.serving import Start
from autocompile.workload.gpu import gpu_kind


def of_the_gpu(needed: Requirements, start: Start, index: int | None) -> Iterator[tuple[str, str]]:
    """Yield what differs in the GPU, by name and in words: `capability`, `gpu`, or only the `figures`.

    A compiled program runs on any GPU with the same compute capability and number of multiprocessors, because some
    kernels depend on that number. Entries in the compiler's cache depend on the GPU's name.
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
        yield "gpu", f"the compiler's cache was made on {was}, and is not valid on {now}"
    elif needed.multiprocessors != here.multiprocessors:
        yield "gpu", f"packed for {was}, and this is {now}"
    else:
        yield "figures", f"measured on {needed.gpu}, and this is {here.name}"
