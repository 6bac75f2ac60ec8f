"""OpenVINO itself: imported without its telemetry, and configured for calls that come one at a time."""

from __future__ import annotations

import gc
import sys
from functools import cache
from importlib import import_module
from typing import Any

_TELEMETRY = "openvino_telemetry"


@cache
def openvino() -> Any:
    """Return the library. Raises ImportError.

    By default it sends usage data when it is imported and when it converts, and stores an identity in the user's home
    directory. It does not do so if its telemetry module cannot be imported. If the user's program has already imported
    one of them, nothing is changed.
    """
    undecided = not {_TELEMETRY, "openvino"} & sys.modules.keys()
    if undecided:
        sys.modules[_TELEMETRY] = None  # type: ignore[assignment]
    collecting = gc.isenabled()
    # A garbage collection of torch's objects would happen during the import and take longer than the import itself.
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
    """Return the object that compiles and loads programs. There is one per process, which is never deleted.

    It starts threads when it is first asked for a program. It also gives the thread its own stack for signals
    (`sigaltstack`), and removes it when the object is deleted. If several objects are deleted in the order in which
    they were created, the remaining stack no longer exists, and the next signal, such as Ctrl-C, crashes the process
    (seen with OpenVINO 2026.4).
    """
    return openvino().Core()


def options(precision: str, threads: int) -> dict[str, Any]:
    """Return the options with which a program is compiled and loaded.

    The precision is always given, because by default the library uses bfloat16 for float32 if the processor has
    instructions for it. One stream has all threads, because calls come one by one. Threads are not bound to cores,
    because all processes would use the same cores, and torch's own threads run on them, too.
    """
    return {
        "INFERENCE_PRECISION_HINT": precision,
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": threads,
        "ENABLE_CPU_PINNING": False,
    }


# The beginnings of lines in its messages that give the location in its source code.
_PLACES = ("Exception from ", "Check '", "FrontEnd API failed", "Summary", "Model wasn't fully")


def in_a_line(fault: BaseException) -> str:
    """Return the library's message in one line, without locations in its source code."""
    lines = [line.strip() for line in str(fault).splitlines()]
    said = [line for line in lines if line and not line.startswith(_PLACES)]
    return " ".join(said[:2])[:300] or f"{type(fault).__name__}: {' '.join(lines)[:300]}"
