"""The processes in which Inductor compiles GPU kernels, alongside the process that it runs in."""

from __future__ import annotations

import sys
import threading

_LONGEST_S = 10.0


def end_workers() -> None:
    """Stop the processes; a later compilation starts new ones. Gives up after some seconds, because they may be stuck.

    There is one for each core, and each imports torch, which takes longer than compiling a small model. They would
    therefore still be running during the timing that follows.
    """
    compiler = sys.modules.get("torch._inductor.async_compile")
    if compiler is None:
        return
    ending = threading.Thread(target=compiler.shutdown_compile_workers, daemon=True)
    ending.start()
    ending.join(_LONGEST_S)
