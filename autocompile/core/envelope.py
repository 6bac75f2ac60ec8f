"""Which candidate is best for how many calls: the lower envelope of the lines start-up + calls x latency."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autocompile.core.serde import Record


@dataclass(frozen=True)
class Line:
    """What a process pays once, and for each call, in seconds; `..._error_s` is half the figure's 95% interval."""

    label: str
    startup_s: float
    latency_s: float
    startup_error_s: float = 0.0
    latency_error_s: float = 0.0

    def total_s(self, calls: float) -> float:
        """What a process with so many calls takes."""
        return self.startup_s + calls * self.latency_s


class Segment(Record, frozen=True):
    """`label` is best from `from_calls` up to `to_calls`; None is without end.

    The break-even at which it begins lies in `from_low` to `from_high` with 95% confidence; None is without end:
    it may never be reached.
    """

    label: str
    from_calls: int
    to_calls: int | None
    from_low: int = 1
    from_high: int | None = 1


def lower_envelope(lines: Sequence[Line]) -> tuple[Segment, ...]:
    """The segments from one call on, in order. Between equals the one with less start-up is taken."""
    segments: list[Segment] = []
    current = min(lines, key=lambda line: (line.total_s(1), line.startup_s))
    calls = 1
    reached: tuple[int, int | None] = (1, 1)
    while True:
        following = _next_crossing(current, lines, calls)
        segment = Segment(current.label, calls, following[0] - 1 if following else None, *reached)
        segments.append(segment)
        if following is None:
            return tuple(segments)
        calls, successor = following
        reached = break_even(current, successor)
        current = successor


def break_even(early: Line, late: Line) -> tuple[int, int | None]:
    """The 95% interval of the number of calls from which `late` is ahead, None for no end.

    Bounds of numerator and denominator, each by the root sum of squares, taken at their worst together.
    """
    startup_s, gain_s = late.startup_s - early.startup_s, early.latency_s - late.latency_s
    startup_error_s = math.hypot(late.startup_error_s, early.startup_error_s)
    gain_error_s = math.hypot(late.latency_error_s, early.latency_error_s)
    low = max(1, math.floor((startup_s - startup_error_s) / (gain_s + gain_error_s)) + 1)
    surely_s = gain_s - gain_error_s
    if surely_s <= 0:
        return low, None
    return low, max(low, math.floor((startup_s + startup_error_s) / surely_s) + 1)


def _next_crossing(current: Line, lines: Sequence[Line], calls: int) -> tuple[int, Line] | None:
    """The first number of calls above `calls` from which another line is lower, and that line."""
    crossings = []
    for line in lines:
        if line.latency_s < current.latency_s:
            exact = (line.startup_s - current.startup_s) / (current.latency_s - line.latency_s)
            at = max(calls + 1, int(exact) + 1)
            crossings.append((at, line.total_s(at), line.latency_s, line))
    if not crossings:
        return None
    first = min(crossings, key=lambda crossing: crossing[:3])
    return first[0], first[3]


def undominated(points: Sequence[tuple[float, ...]]) -> list[int]:
    """Positions of the Pareto points: no other is as low in every coordinate and lower in one."""
    return [
        position
        for position, point in enumerate(points)
        if not any(
            other != point and all(theirs <= mine for theirs, mine in zip(other, point, strict=True))
            for other in points
        )
    ]
