"""OpenVINO itself: imported without what it sends home, and set up for calls that come one at a time."""

from __future__ import annotations

import gc
import sys
from functools import cache
from importlib import import_module
from typing import Any

_TELEMETRY = "openvino_telemetry"


@cache
def openvino() -> Any:
    """The library. Raises ImportError.

    By itself it sends usage data when it is imported and when it converts, and keeps an identity in the user's home
    directory. It does without where its telemetry cannot be imported. Whoever has imported it before has decided that.
    """
    undecided = not {_TELEMETRY, "openvino"} & sys.modules.keys()
    if undecided:
        sys.modules[_TELEMETRY] = None  # type: ignore[assignment]
    collecting = gc.isenabled()
    # A collection of all that torch has in memory would fall into the import, and takes longer than the import itself.
    gc.disable()
    try:
        return import_module("openvino")
    finally:
        if collecting:
            gc.enable()
        if undecided:
            del sys.modules[_TELEMETRY]


@cache
def core() -> Any:
    """What compiles and loads programs: one for the whole process, and as long as the process lives.

    It starts threads when it is first asked for a program. It also gives the thread a stack for signals of its own
    (`sigaltstack`), and takes that away when it ends. Where several have come and gone in the order in which they came,
    the stack that is left is no longer there, and the next signal, Ctrl-C for one, ends the process (seen with
    OpenVINO 2026.4).
    """
    return openvino().Core()


def options(precision: str, threads: int) -> dict[str, Any]:
    """What a program is compiled and loaded with.

    The precision is always told: by itself the library takes bfloat16 for float32 where the processor has instructions
    for it. One stream has all threads, as calls come one by one. Threads are not bound to cores: each process would
    take the same ones, and torch's own threads run on them, too.
    """
    return {
        "INFERENCE_PRECISION_HINT": precision,
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": threads,
        "ENABLE_CPU_PINNING": False,
    }


# How its messages begin a line that tells where in its sources something was raised.
_PLACES = ("Exception from ", "Check '", "FrontEnd API failed", "Summary", "Model wasn't fully")


def in_a_line(fault: BaseException) -> str:
    """What it says was wrong, without where in its sources that was."""
    lines = [line.strip() for line in str(fault).splitlines()]
    said = [line for line in lines if line and not line.startswith(_PLACES)]
    return " ".join(said[:2])[:300] or f"{type(fault).__name__}: {' '.join(lines)[:300]}"
