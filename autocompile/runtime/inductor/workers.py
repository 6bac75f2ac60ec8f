"""The processes in which Inductor compiles kernels for a GPU beside the one that it runs in."""

from __future__ import annotations

import sys
import threading

_LONGEST_S = 10.0


def end_workers() -> None:
    """End them; what is compiled later starts new ones. Gives up after some seconds, as they may be stuck.

    There is one for each core, and each imports torch, which takes longer than a small model takes to compile. So they
    would go on into what is timed afterwards.
    """
    compiler = sys.modules.get("torch._inductor.async_compile")
    if compiler is None:
        return
    ending = threading.Thread(target=compiler.shutdown_compile_workers, daemon=True)
    ending.start()
    ending.join(_LONGEST_S)
