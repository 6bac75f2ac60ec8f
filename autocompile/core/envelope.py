"""The envelope: the best candidate for each number of calls. Each candidate is a line, start-up + calls x latency."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autocompile.core.serde import Record


@dataclass(frozen=True)
class Line:
    """The cost of a process, once and per call, in seconds. `..._error_s` is half the 95% interval of the value."""

    label: str
    startup_s: float
    latency_s: float
    startup_error_s: float = 0.0
    latency_error_s: float = 0.0

    def total_s(self, calls: float) -> float:
        """Return the seconds of a process that makes this many calls."""
        return self.startup_s + calls * self.latency_s


class Segment(Record, frozen=True):
    """A range of calls in which `label` is best: from `from_calls` up to `to_calls` (null: without end).

    `break_even`: the number of calls from which on it takes less time than the segment before; null if it never does,
    and was preferred for being simpler. With 95% confidence, that number is between `from_low` and `from_high`; null
    means that it may never be reached. `from_calls` is larger than `break_even` if the candidate before is simpler: the
    simpler one is kept until it is surely slower.
    """

    label: str
    from_calls: int
    to_calls: int | None
    from_low: int = 1
    from_high: int | None = 1
    break_even: int | None = 1


def steps(choose: Callable[[int], int], last: int) -> list[tuple[int, int]]:
    """Return which candidate number is chosen from how many calls on, for 1 to `last` calls: pairs of calls and number.

    Each number occurs once. After a change, an earlier choice is not taken again, so that intervals that overlap for
    some numbers of calls only cannot make the choice alternate. `choose` is evaluated for doubling numbers of calls,
    and each change is then located exactly by bisection.
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
    """Return the result of `steps` as segments, each with its break-even."""
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
    """Return the segment that contains this number of calls."""
    return next(segment for segment in reversed(segments) if segment.from_calls <= max(1.0, calls))


def break_even(early: Line, late: Line) -> tuple[int, int | None]:
    """Return the 95% interval of the number of calls from which on `late` is ahead; None means no upper bound.

    It combines the worst bounds of numerator and denominator, each of them a root sum of squares.
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
    """Return the number of calls from which on `late` takes less time than `early`; None if it never does."""
    gain_s = early.latency_s - late.latency_s
    if gain_s <= 0:
        return None
    return max(1, math.floor((late.startup_s - early.startup_s) / gain_s) + 1)


def undominated(points: Sequence[tuple[float, ...]]) -> list[int]:
    """Return the positions of the Pareto points: no other point is as low in every coordinate and lower in one."""
    return [
        position
        for position, point in enumerate(points)
        if not any(
            other != point and all(theirs <= mine for theirs, mine in zip(other, point, strict=True))
            for other in points
        )
    ]
