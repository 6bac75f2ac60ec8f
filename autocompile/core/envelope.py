"""Which candidate is best for how many calls: the lower envelope of the lines start-up + calls x latency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autocompile.core.serde import Record


@dataclass(frozen=True)
class Line:
    """What a process pays once, and for each call, in seconds."""

    label: str
    startup_s: float
    latency_s: float


class Segment(Record, frozen=True):
    """`label` is best from `from_calls` up to `to_calls`; None is without end."""

    label: str
    from_calls: int
    to_calls: int | None


def lower_envelope(lines: Sequence[Line]) -> tuple[Segment, ...]:
    """The segments from one call on, in order. Between equals the one with less start-up is taken."""
    segments: list[Segment] = []
    calls = 1
    current = min(lines, key=lambda line: (line.startup_s + line.latency_s, line.startup_s))
    while True:
        following = _next_crossing(current, lines, calls)
        if following is None:
            return (*segments, Segment(label=current.label, from_calls=calls, to_calls=None))
        at, successor = following
        segments.append(Segment(label=current.label, from_calls=calls, to_calls=at - 1))
        calls, current = at, successor


def _next_crossing(current: Line, lines: Sequence[Line], calls: int) -> tuple[int, Line] | None:
    """The first number of calls above `calls` from which another line is lower, and that line."""
    crossings = []
    for line in lines:
        if line.latency_s < current.latency_s:
            exact = (line.startup_s - current.startup_s) / (current.latency_s - line.latency_s)
            at = max(calls + 1, int(exact) + 1)
            crossings.append((at, line.startup_s + at * line.latency_s, line.latency_s, line))
    if not crossings:
        return None
    first = min(crossings, key=lambda crossing: crossing[:3])
    return first[0], first[3]
