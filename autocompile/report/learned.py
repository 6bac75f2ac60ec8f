"""How finalists learned beside eager, a line each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autocompile.core.document import TrialEntry
from autocompile.core.outcome import Learned


def learned_lines(entries: Sequence[TrialEntry]) -> Iterator[str]:
    """Of those that were trained, or should have been."""
    for entry in entries:
        if entry.learned is not None:
            yield f"{entry.label}: {learned_words(entry.learned)}"


def learned_words(learned: Learned) -> str:
    """`trained 32 steps beside eager: loss 2.31 -> 1.87, eager 1.87`; or `32 closure calls`."""
    if learned.skipped:
        return f"not trained beside eager: {learned.skipped}"
    seeds = f" from {learned.seeds} seeds" if learned.seeds > 1 else ""
    losses = f"loss {learned.first:.4g} -> {learned.last:.4g}, eager {learned.baseline_last:.4g}"
    return f"trained {learned.steps} {learned.words.counted(learned.steps)}{seeds} beside eager: {losses}"
