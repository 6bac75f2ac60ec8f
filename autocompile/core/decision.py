"""Why the agent did what it did."""

from __future__ import annotations

from autocompile.core.serde import Record


class Decision(Record, frozen=True):
    """One entry of the journal: at `at_s` seconds into the run, `action` on `subject`, and `reason`.

    `action` is one of narrowed, seeded, skipped, stopped, failed, preferred, noted. `saved_s`: the seconds of trials
    that it saves, as far as can be told; 0 where that is not known.
    """

    at_s: float
    action: str
    subject: str
    reason: str
    saved_s: float = 0.0
