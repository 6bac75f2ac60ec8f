"""What limits a unit of work, or a part of it."""

from __future__ import annotations

from typing import Literal

# Rule of thumb from profiling practice: a GPU that is busy for less of the time waits for its launches.
STARVED_GPU = 2 / 3

Bound = Literal["overhead", "memory", "compute", "input", "unknown"]
