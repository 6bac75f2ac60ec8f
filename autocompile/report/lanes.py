"""Describes the lanes of a run: what each compiled, what was measured, and how long candidates waited."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autocompile.core.document import Document, LaneEntry
from autocompile.core.units import format_duration


def lane_lines(document: Document) -> Iterator[str]:
    """Yield a line for each lane, and what delayed candidates; nothing for a run with one lane."""
    if not document.lanes:
        return
    for machine in sorted({entry.machine for entry in document.lanes}):
        yield from _of_machine([entry for entry in document.lanes if entry.machine == machine], machine)
    yield "compiling in parallel takes as long as compiling alone, or longer"


def _of_machine(entries: Sequence[LaneEntry], machine: str) -> Iterator[str]:
    on, this = (f" on {machine}", machine) if machine else ("", "this machine")
    measured = [entry for entry in entries if entry.doing == "measuring"]
    if measured:
        yield f"measuring{on}, one by one: {_counted(measured, 'candidate')} in {format_duration(_ran_s(measured))}"
        yield from _waiting(measured)
        yield from _disturbed(measured, this)
    for lane in sorted({entry.lane for entry in entries if entry.doing == "compiling"}):
        compiled = [entry for entry in entries if entry.lane == lane and entry.doing == "compiling"]
        name = f"compiling{on}, lane {lane}" if lane else f"compiling{on}, alone"
        paused_s = sum(entry.paused_s for entry in compiled)
        paused = f", and paused for {format_duration(paused_s)} while another was measured" if paused_s else ""
        yield f"{name}: {_counted(compiled, 'program')} in {format_duration(_ran_s(compiled))}{paused}"


def _waiting(measured: Sequence[LaneEntry]) -> Iterator[str]:
    longest = max(measured, key=lambda entry: entry.waited_s)
    if longest.waited_s >= 1:
        waited = format_duration(sum(entry.waited_s for entry in measured))
        most = f"{longest.label} longest: {format_duration(longest.waited_s)}"
        yield f"candidates that were ready waited {waited} for their turn, {most}"


def _disturbed(measured: Sequence[LaneEntry], this: str) -> Iterator[str]:
    noisy = [entry for entry in measured if entry.noisy]
    if noisy:
        yield f"other processes used {this} while {len(noisy)} of {len(measured)} were measured"
    for entry in measured:
        if entry.throttled:
            yield f"the GPU was slowed down ({entry.throttled}) while {entry.label} was measured"


def _ran_s(entries: Sequence[LaneEntry]) -> float:
    return sum(entry.ended_s - entry.began_s - entry.paused_s for entry in entries)


def _counted(entries: Sequence[LaneEntry], one: str) -> str:
    return f"{len(entries)} {one}{'s' * (len(entries) != 1)}"
