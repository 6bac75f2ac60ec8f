"""Decisions: the journal of why a run did what it did."""

from __future__ import annotations

from autocompile.core.serde import Record


class Decision(Record, frozen=True):
    """One entry of the journal: `at_s` seconds into the run, `action` was taken on `subject`, because of `reason`.

    `action` is one of narrowed, seeded, skipped, stopped, failed, preferred, noted. `saved_s`: an estimate of the trial
    seconds that the decision saves; 0 if unknown.
    """

    at_s: float
    action: str
    subject: str
    reason: str
    saved_s: float = 0.0
