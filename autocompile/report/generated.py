"""Describes how whole texts were generated with a candidate's decode step, one line per candidate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autocompile.core.document import TrialEntry
from autocompile.core.outcome import Generated


def generated_lines(entries: Sequence[TrialEntry]) -> Iterator[str]:
    """Yield a line for each candidate that generated texts, or should have."""
    for entry in entries:
        if entry.generated is not None:
            yield f"{entry.label}: {generated_words(entry.generated)}"


def generated_words(generated: Generated) -> str:
    """Return a line such as `118 tokens a second, eager 59: 2.00x (1.95 to 2.04), prompts included; ...`."""
    if generated.skipped or generated.speedup is None:
        return f"no texts were generated: {generated.skipped}"
    rates = f"{generated.tokens_per_s:,.3g} tokens a second, eager {generated.baseline_tokens_per_s:,.3g}"
    own = generated.speedup
    interval = f"{own.value:.2f}x ({own.low:.2f} to {own.high:.2f})"
    return f"{rates}: {interval}, prompts included; all {generated.tokens:,} compared tokens are the same as eager's"
