"""A plot of the envelope: time per call, start-up included, over the number of calls. Both axes are logarithmic."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from autocompile.core.document import Document, TrialEntry
from autocompile.core.units import format_count, format_ms
from autocompile.core.words import Words, words_of
from autocompile.report.limits import is_beyond

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 860, 370, 80, 260, 32, 46
_COLOURS = ("#1b9e77", "#d95f02", "#7570b3", "#e7298a", "#66a61e", "#a6761d")
_POINTS = 80


def envelope_svg(document: Document) -> str:
    """Return an SVG of the candidates on the envelope, with the break-even counts and the goal's number of calls."""
    on_it = [segment.label for segment in document.envelope]
    entries = [e for label in dict.fromkeys(on_it) for e in document.trials if e.label == label and e.paired_ms]
    last = document.envelope[-1].from_calls
    reach = math.ceil(math.log10(max(100, 10 * last, document.calls)))
    frame = _Frame(reach, entries)
    words = words_of(document.workload.kind)
    parts = [*_axes(frame, words), *(_goal_mark(frame, document.calls) if document.goal.objective == "time" else ())]
    for position, entry in enumerate(entries):
        parts += _line(frame, entry, _COLOURS[position % len(_COLOURS)], position)
    for segment in document.envelope[1:]:
        parts.append(_break_even(frame, segment.from_calls))
    size = f'width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    style = "font-family:ui-sans-serif,system-ui,sans-serif;font-size:12px"
    title = f"<title>Milliseconds per {words.one}, start-up included, over the number of {words.many}</title>"
    return f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size} style="{style}">{title}{"".join(parts)}</svg>'


class _Frame:
    """Maps calls (from 1 to 10 to the power of `reach`) and milliseconds (the range of the entries) to pixels."""

    def __init__(self, reach: int, entries: Sequence[TrialEntry]) -> None:
        self.reach = reach
        seen = [_each_ms(entry, calls) for entry in entries for calls in (1.0, 10.0**reach)]
        self.low = math.floor(math.log10(min(seen)) * 2) / 2
        self.high = math.ceil(math.log10(max(seen)) * 2) / 2 + 1e-9

    def x(self, calls: float) -> float:
        """Return pixels from the left."""
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * math.log10(calls) / self.reach

    def y(self, milliseconds: float) -> float:
        """Return pixels from the top."""
        share = (math.log10(milliseconds) - self.low) / (self.high - self.low)
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * share


def _each_ms(entry: TrialEntry, calls: float) -> float:
    assert entry.paired_ms is not None
    return entry.paired_ms.value + ((entry.startup_s or 0.0) + (entry.packing_s or 0.0)) * 1e3 / calls


def _axes(frame: _Frame, words: Words) -> Iterator[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for power in range(frame.reach + 1):
        x = frame.x(10.0**power)
        yield f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#e4e4e4"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle" fill="#555">{format_count(10**power)}</text>'
    for power in range(math.ceil(frame.low), math.floor(frame.high) + 1):
        y = frame.y(10.0**power)
        yield f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#e4e4e4"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#555">{format_ms(10.0**power)}</text>'
    yield f'<text x="{_LEFT}" y="16" fill="#222">time per {words.one}, start-up included</text>'
    middle = (_LEFT + right) / 2
    yield f'<text x="{middle}" y="{_HEIGHT - 8}" text-anchor="middle" fill="#555">{words.many} per process</text>'


def _goal_mark(frame: _Frame, calls: float) -> Iterator[str]:
    x = frame.x(calls)
    yield f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{_HEIGHT - _BOTTOM}" stroke="#555" stroke-dasharray="4 4"/>'
    yield f'<text x="{x - 4:.1f}" y="{_TOP + 10}" text-anchor="end" fill="#555">goal: {format_count(calls)}</text>'


def _line(frame: _Frame, entry: TrialEntry, colour: str, position: int) -> Iterator[str]:
    powers = [frame.reach * step / _POINTS for step in range(_POINTS + 1)]
    points = " ".join(f"{frame.x(10**p):.1f},{frame.y(_each_ms(entry, 10**p)):.1f}" for p in powers)
    yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
    x, y = _WIDTH - _RIGHT + 16, _TOP + 14 + 20 * position
    yield f'<rect x="{x}" y="{y - 9}" width="12" height="3" fill="{colour}"/>'
    limit = " (beyond a limit)" if is_beyond(entry) else ""
    yield f'<text x="{x + 18}" y="{y - 4}" fill="#222">{escape(entry.label)}{limit}</text>'


def _break_even(frame: _Frame, calls: int) -> str:
    x, bottom = frame.x(calls), _HEIGHT - _BOTTOM
    mark = f'<line x1="{x:.1f}" y1="{bottom - 12}" x2="{x:.1f}" y2="{bottom}" stroke="#222" stroke-width="2"/>'
    return mark + f'<text x="{x + 4:.1f}" y="{bottom - 4}" fill="#222">{format_count(calls)}</text>'
