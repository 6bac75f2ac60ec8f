"""Describes how finalists learned in comparison with eager, one line per finalist."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autocompile.core.document import TrialEntry
from autocompile.core.outcome import Learned


def learned_lines(entries: Sequence[TrialEntry]) -> Iterator[str]:
    """Yield a line for each candidate that was trained, or should have been."""
    for entry in entries:
        if entry.learned is not None:
            yield f"{entry.label}: {learned_words(entry.learned)}"


def learned_words(learned: Learned) -> str:
    """Return a line such as `trained 32 steps alongside eager: loss 2.31 -> 1.87, eager 1.87`."""
    if learned.skipped:
        return f"not trained alongside eager: {learned.skipped}"
    seeds = f" from {learned.seeds} seeds" if learned.seeds > 1 else ""
    losses = f"loss {learned.first:.4g} -> {learned.last:.4g}, eager {learned.baseline_last:.4g}"
    return f"trained {learned.steps} {learned.words.counted(learned.steps)}{seeds} alongside eager: {losses}"
