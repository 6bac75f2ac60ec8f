"""What "best" means for this user."""

from __future__ import annotations

from autocompile.core.errors import InvalidValue
from autocompile.core.serde import Record


class Goal(Record, frozen=True):
    """How long a process lives: `calls` calls, or if None, `horizon_s` seconds of the baseline's calls.

    The score is the amortized time of a call: `(startup + calls * latency) / calls`.
    Raises InvalidValue for fewer than one call or a horizon that is not positive.
    """

    calls: int | None = None
    horizon_s: float = 3600.0

    def __post_init__(self) -> None:
        if self.calls is not None and self.calls < 1:
            raise InvalidValue(f"{self.calls} calls is not a number of calls", where="calls", remedy="give 1 or more")
        if not self.horizon_s > 0:
            raise InvalidValue(f"{self.horizon_s} s is no horizon", where="horizon", remedy="give a positive duration")

    def calls_for(self, baseline_s: float) -> float:
        """The number of calls to amortize over, given one baseline call's seconds."""
        return float(self.calls) if self.calls is not None else max(1.0, self.horizon_s / baseline_s)
