"""Memory limits that the unmodified model exceeds: by how much, and what is tried first to save memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autocompile.core.goal import Goal
from autocompile.core.trial import Trial
from autocompile.search.choose.seeds import Seed
from autocompile.space.space import Space

_SAVING = ("activations", "micro_batches")


def baseline_memory(trials: Sequence[Trial]) -> int:
    """Return the baseline's peak, in bytes; 0 while that is not known."""
    measured = [t.measurement.peak_memory_bytes for t in trials if t.origin == "baseline" and t.measurement]
    return measured[0] if measured else 0


def memory_left(goal: Goal, trials: Sequence[Trial]) -> float:
    """Return the goal's limit on the peak, as a log ratio to the baseline's; infinity where either is not known."""
    limit, baseline = goal.entry().max_memory_bytes, baseline_memory(trials)
    return math.log(limit / baseline) if limit and baseline else math.inf


def saving_seeds(space: Space) -> list[Seed]:
    """Return the memory-saving candidates that all runtimes share, in eager, where their trials are short.

    Each value is tried alone, then all of them together.
    """
    reason = "the unmodified model exceeds max_memory"
    ways = {name: [v for v in space.open_values[name] if v != space.defaults()[name]] for name in _SAVING}
    alone = [space.candidate(**{name: value}) for name, values in ways.items() for value in values]
    most = {name: values[-1] for name, values in ways.items() if values}
    together = [space.candidate(**most)] if len(most) > 1 else []
    return [Seed(candidate, reason) for candidate in (*alone, *together)]
