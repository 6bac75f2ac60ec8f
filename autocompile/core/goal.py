"""What "best" means for this user."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from autocompile.core.errors import InvalidValue
from autocompile.core.tolerance import Tolerance, exactly, published_tolerance


@dataclass(frozen=True)
class Goal:
    """How long a process lives, and what still counts as correct.

    `calls`: how many calls a process makes, or if None, as many as the baseline makes in `horizon_s`
    seconds; the score is the amortized time of a call, `(startup + calls * latency) / calls`.
    `tolerance`: the largest root mean square error of an output, relative to the reference's root mean
    square; None takes the published limits of the candidate's precision. `metric`: called with the
    model's output, gives a number of which more is better; then a candidate passes if its mean over the
    checked calls is at most `max_drop` below the baseline's, instead of by tolerance.

    Raises InvalidValue for fewer than one call, and for figures that are not positive.
    """

    calls: int | None = None
    horizon_s: float = 3600.0
    tolerance: float | None = None
    metric: Callable[[Any], float] | None = None
    max_drop: float = 0.0

    def __post_init__(self) -> None:
        if self.calls is not None and (not isinstance(self.calls, int) or self.calls < 1):
            raise InvalidValue(f"{self.calls} calls is not a number of calls", where="calls", remedy="give 1 or more")
        if not self.horizon_s > 0:
            raise InvalidValue(f"{self.horizon_s} s is no horizon", where="horizon", remedy="give a positive duration")
        if self.tolerance is not None and not self.tolerance > 0:
            raise InvalidValue(f"{self.tolerance} is no tolerance", where="tolerance", remedy="give one like 1e-3")
        if not self.max_drop >= 0:
            raise InvalidValue(f"{self.max_drop} is no drop", where="max_drop", remedy="give 0 or more")
        if self.max_drop and self.metric is None:
            raise InvalidValue("there is no metric that could drop", where="max_drop", remedy="give metric= too")
        if self.metric is not None and self.tolerance is not None:
            raise InvalidValue("a metric takes the place of a tolerance", where="goal", remedy="give one of the two")
        if self.metric is not None and not callable(self.metric):
            raise InvalidValue(f"a {type(self.metric).__name__} cannot be called", where="metric")

    def calls_for(self, baseline_s: float) -> float:
        """The number of calls to amortize over, given one baseline call's seconds."""
        return float(self.calls) if self.calls is not None else max(1.0, self.horizon_s / baseline_s)

    def tolerance_for(self, autocast: str) -> Tolerance:
        """The limits for a candidate of this precision ("" is the model's own)."""
        return published_tolerance(autocast) if self.tolerance is None else exactly(self.tolerance)

    @property
    def acceptance_digest(self) -> str:
        """Eight letters; equal for goals that accept the same outputs: what one accepted, another may not."""
        code = getattr(self.metric, "__code__", None)
        parts = (self.tolerance, self.max_drop, code.co_code.hex() if code else repr(self.metric))
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:8]
