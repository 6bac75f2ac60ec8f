"""What limits a unit of work, or a part of it."""

from __future__ import annotations

from typing import Literal

# Rule of thumb from profiling practice: a GPU that is busy for a smaller share of the time waits for kernel launches.
STARVED_GPU = 2 / 3

Bound = Literal["overhead", "memory", "compute", "input", "unknown"]
