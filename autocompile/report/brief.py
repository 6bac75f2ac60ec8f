"""A recommendation in short: what `print(rec)` and `autocompile tune` say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from autocompile.core.document import Document, TrialEntry
from autocompile.report.generated import generated_lines
from autocompile.report.learned import learned_lines
from autocompile.report.text import artifact_lines, headline, plain_text, section, trial_table

# Rows of the table, beside the baseline and plain `torch.compile`, which are always there.
_LEADING = 6
_ALWAYS = ("baseline", "plain")


def as_brief(document: Document) -> str:
    """As plain text, 120 columns wide."""
    return plain_text(brief(document))


def brief(document: Document, kept: str = "") -> RenderableType:
    """Verdict, what to know, the leading rows of the table, the artifact, and where to read on.

    `kept` is the directory that it is kept in, or "" for a recommendation that is only in memory.
    """
    rows = _leading(document.trials)
    return Group(
        headline(document),
        *section("What to know", document.notices),
        "",
        trial_table(document, rows),
        *_left_out(document.trials, rows),
        *section("Trained", learned_lines(rows)),
        *section("Generated", generated_lines(rows)),
        *section("Start" if document.workload.training else "Artifact", artifact_lines(document)),
        *section("Read on", _further(kept)),
    )


def _leading(trials: Sequence[TrialEntry]) -> list[TrialEntry]:
    """In their order: the best, plain `torch.compile` and the baseline."""
    return [entry for place, entry in enumerate(trials) if place < _LEADING or entry.origin in _ALWAYS]


def _left_out(trials: Sequence[TrialEntry], shown: Sequence[TrialEntry]) -> Iterable[RenderableType]:
    """How many rows are not shown, if any are not."""
    rest = [entry for entry in trials if entry not in shown]
    if not rest:
        return ()
    failed = sum(entry.failure is not None for entry in rest)
    ended = f", {failed} of which failed" if failed else ""
    return (Text(f"and {len(rest)} more{ended}"),)


def _further(kept: str) -> Iterable[str]:
    if not kept:
        yield "rec.explain(): the run in a dozen sentences; rec.snippet(): the winner in plain torch"
        yield "rec.save(DIR), then:"
    place = kept or "DIR"
    yield f"autocompile show {place}: all of it, with profile, decisions, envelope, trade-offs and plain torch code"
    yield f"{place}/report.html: the same as a page, with the envelope drawn"
