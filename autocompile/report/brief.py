"""The short report, which `print(rec)` and `autocompile tune` print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from autocompile.core.document import Document, TrialEntry
from autocompile.report.generated import generated_lines
from autocompile.report.learned import learned_lines
from autocompile.report.plain import plain_text
from autocompile.report.prompts import prompts_lines
from autocompile.report.text import artifact_lines, headline, section, trial_table

# How many rows of the table are shown, in addition to the baseline and plain `torch.compile`.
_LEADING = 6
_ALWAYS = ("baseline", "plain")


def as_brief(document: Document) -> str:
    """Return the short report as plain text, 120 columns wide."""
    return plain_text(brief(document))


def brief(document: Document, kept: str = "") -> RenderableType:
    """Return the verdict, the notices, the first rows of the table, the artifact, and where to find more.

    `kept` is the directory of the recommendation, or "" if it is only in memory.
    """
    rows = _leading(document.trials)
    return Group(
        headline(document),
        *section("What to know", document.notices),
        "",
        trial_table(document, rows),
        *_left_out(document.trials, rows),
        *section("Trained", learned_lines(rows)),
        *section("Generated", (*generated_lines(rows), *prompts_lines(document))),
        *section("Start" if document.workload.training else "Artifact", artifact_lines(document)),
        *section("Read on", _further(kept)),
    )


def _leading(trials: Sequence[TrialEntry]) -> list[TrialEntry]:
    """Return the best trials, plain `torch.compile` and the baseline, in their order."""
    return [entry for place, entry in enumerate(trials) if place < _LEADING or entry.origin in _ALWAYS]


def _left_out(trials: Sequence[TrialEntry], shown: Sequence[TrialEntry]) -> Iterable[RenderableType]:
    """Yield how many rows are not shown, if any."""
    rest = [entry for entry in trials if entry not in shown]
    if not rest:
        return ()
    failed = sum(entry.failure is not None for entry in rest)
    ended = f", of which {failed} failed" if failed else ""
    return (Text(f"and {len(rest)} more{ended}"),)


def _further(kept: str) -> Iterable[str]:
    if not kept:
        yield "rec.explain(): the run in a dozen sentences; rec.snippet(): the winner in plain torch"
        yield "after rec.save(DIR):"
    place = kept or "DIR"
    yield f"autocompile show {place}: the full report, with profile, decisions, envelope, trade-offs and torch code"
    yield f"{place}/report.html: the full report as a page, with a plot of the envelope"
