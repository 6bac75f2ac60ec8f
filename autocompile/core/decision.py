"""Why the agent did what it did."""

from __future__ import annotations

from autocompile.core.serde import Record


class Decision(Record, frozen=True):
    """One entry of the journal: at `at_s` seconds into the run, `action` on `subject`, and `reason`.

    `action` is one of narrowed, seeded, skipped, stopped, failed, preferred, noted.
    """

    at_s: float
    action: str
    subject: str
    reason: str
