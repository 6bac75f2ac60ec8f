"""Describes which candidates meet the goal's limits."""

from __future__ import annotations

from autocompile.core.document import Document, TrialEntry
from autocompile.core.limits import beyond, by
from autocompile.core.units import format_bytes, format_duration, format_ms
from autocompile.core.words import words_of


def is_beyond(entry: TrialEntry) -> bool:
    """Return whether a trial exceeds a limit."""
    return any(share > 0 for share in entry.excess.values())


def verdict_words(entry: TrialEntry) -> str:
    """Return a measured trial's verdict, and which limits it exceeds."""
    if not is_beyond(entry):
        return entry.verdict
    which = f"beyond {beyond(entry.excess)}"
    first = "baseline" if entry.origin == "baseline" and entry.verdict != "nearest" else entry.verdict
    return which if first == "beyond a limit" else f"{first}, {which}"


def all_break(document: Document) -> str:
    """Return that all candidates exceed a limit, and which comes nearest, for a document of which that is true."""
    nearest = f"{document.winner.label} comes nearest, for any number of {words_of(document.workload.kind).many}"
    return f"all measured candidates are beyond a limit; {nearest}"


def unmet(document: Document) -> str:
    """Return which limits the nearest candidate misses, and by how much; for a document without a feasible winner."""
    broken = [(name, share) for name, share in document.winner.excess.items() if share > 0]
    each = ", ".join(f"{name} {_allowed(document, name)} is missed by {by(share)}" for name, share in broken)
    return f"{each}: {document.winner.label} comes nearest of all measured candidates"


def _allowed(document: Document, name: str) -> str:
    goal = document.goal
    figures = {
        "max_latency": format_ms(goal.max_latency_ms or 0.0),
        "max_startup": format_duration(goal.max_startup_s or 0.0),
        "max_memory": format_bytes(goal.max_memory_bytes or 0),
    }
    return figures[name]
