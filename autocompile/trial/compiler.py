"""Torch's compiler packages, imported here first, and the seconds that this takes.

A process that compiles pays for it once. Children are forked with it paid, so it is added to what a
candidate that compiles needs to start.
"""

from __future__ import annotations

import time

_began = time.perf_counter()

from torch._dynamo.utils import counters  # noqa: E402

IMPORT_S = time.perf_counter() - _began
__all__ = ["IMPORT_S", "counters"]
