"""Which candidate is best for how many calls: each is a line, start-up + calls x latency."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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

    `break_even`: from how many calls on it takes less time than the segment before it; null if it never does, because
    it was preferred for being simpler. With 95% confidence that number lies in `from_low` to `from_high`; null is
    without end: it may never be reached. `from_calls` is later than `break_even` where the one before is simpler:
    then it stays until it is surely behind.
    """

    label: str
    from_calls: int
    to_calls: int | None
    from_low: int = 1
    from_high: int | None = 1
    break_even: int | None = 1


def steps(choose: Callable[[int], int], last: int) -> list[tuple[int, int]]:
    """From how many calls on which number is chosen, for 1 to `last` calls: pairs of calls and number.

    No number comes twice. Once another was chosen for more calls, the earlier one is not taken again, so intervals
    that overlap for some numbers of calls, and not for others, cannot make the choice go back and forth.
    `choose` is looked at for doubling numbers of calls, and each change is then found exactly.
    """
    found = [(1, choose(1))]
    calls, taken = 1, {found[0][1]}
    while calls < last:
        following = min(last, 2 * calls)
        if choose(following) in taken:
            calls = following
            continue
        while following - calls > 1:
            middle = (calls + following) // 2
            if choose(middle) in taken:
                calls = middle
            else:
                following = middle
        calls = following
        found.append((calls, choose(calls)))
        taken.add(found[-1][1])
    return found


def segments_of(found: Sequence[tuple[int, Line]]) -> tuple[Segment, ...]:
    """What `steps` found, in order, with the break-even at which each begins."""
    segments: list[Segment] = []
    for position, (calls, line) in enumerate(found):
        to_calls = found[position + 1][0] - 1 if position + 1 < len(found) else None
        if position == 0:
            segments.append(Segment(line.label, calls, to_calls))
            continue
        before = found[position - 1][1]
        low, high = break_even(before, line)
        segments.append(Segment(line.label, calls, to_calls, low, high, _crossing(before, line)))
    return tuple(segments)


def at_calls(segments: Sequence[Segment], calls: float) -> Segment:
    """The segment that so many calls lie in."""
    return next(segment for segment in reversed(segments) if segment.from_calls <= max(1.0, calls))


def break_even(early: Line, late: Line) -> tuple[int, int | None]:
    """The 95% interval of the number of calls from which `late` is ahead, None for no end.

    Bounds of numerator and denominator, each by the root sum of squares, taken at their worst together.
    """
    startup_s, gain_s = late.startup_s - early.startup_s, early.latency_s - late.latency_s
    startup_error_s = math.hypot(late.startup_error_s, early.startup_error_s)
    gain_error_s = math.hypot(late.latency_error_s, early.latency_error_s)
    most_s, surely_s = gain_s + gain_error_s, gain_s - gain_error_s
    low = max(1, math.floor((startup_s - startup_error_s) / most_s) + 1) if most_s > 0 else 1
    if surely_s <= 0:
        return low, None
    return low, max(low, math.floor((startup_s + startup_error_s) / surely_s) + 1)


def _crossing(early: Line, late: Line) -> int | None:
    """From how many calls on `late` takes less time than `early`; None if it never does."""
    gain_s = early.latency_s - late.latency_s
    if gain_s <= 0:
        return None
    return max(1, math.floor((late.startup_s - early.startup_s) / gain_s) + 1)


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
