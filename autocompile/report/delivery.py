"""Describes how production will start: packed and timed, packed but not timed, or not packed, and why."""

from __future__ import annotations

from collections.abc import Iterator

from autocompile.artifact.starting import compiles, why_not_packed
from autocompile.core.document import ArtifactEntry, Document
from autocompile.core.units import format_count, format_duration
from autocompile.core.words import words_of

# The most characters of a reason that a headline shows. The message of an exporter can be long.
_LONGEST = 120


def packed_words(document: Document) -> str:
    """Return how `load` starts, for the headline; if nothing is packed, also why; "" if there is nothing to pack."""
    artifact = document.artifact
    if artifact.start == "none":
        return ""
    if document.workload.training:
        return f" It {_compiles_at_the_first_step(document)}."
    if artifact.start == "compile":
        reason = _short(why_not_packed(artifact.absences))
        return f" Not packed{f': {reason}' if reason else ''}; `load` {compiles(document.winner.startup_s)}."
    if artifact.untimed:
        return f" Packed and verified ({artifact.serving}), but not timed after loading: {artifact.untimed}."
    starts = ", which starts the compiler" if artifact.start == "cache" else ""
    return f" Packed ({artifact.serving}{starts}): this is what `load` serves."


def delivery(document: Document) -> Iterator[str]:
    """Yield the same as full sentences."""
    artifact, winner = document.artifact, document.winner
    start = format_duration(winner.startup_s or 0.0)
    if document.workload.training:
        yield from (f"{line.capitalize()}." for line in start_of_training(document))
        return
    if artifact.untimed:
        yield f"It is packed ({artifact.serving}) and verified, but not timed after loading: {artifact.untimed}."
    elif artifact.serving.is_packed:
        yield f"It is packed ({artifact.serving}), and was measured as `load` serves it: {start} to start."
    elif artifact.start == "compile":
        yield f"It is not packed, so `load` {compiles(winner.startup_s)}."
    for absence in artifact.absences[:1]:
        yield f"It is not packed as {absence.serving}: {absence.reason}."
    if artifact.standby:
        yield f"{_standby_for(artifact).capitalize()} are served by {artifact.standby}, compiled."
    yield from _without(document)


def start_of_training(document: Document) -> Iterator[str]:
    """Yield how a process starts to train."""
    runs = "training with `autocompile.prepare`, or with the step in plain torch,"
    if document.workload.script:
        runs = "training with `autocompile run`, with the script unchanged,"
    if document.artifact.start == "none":
        yield f"{runs} compiles nothing"
        return
    yield f"{runs} {_compiles_at_the_first_step(document)}"
    if document.artifact.size_bytes:
        starts = "`autocompile run`" if document.workload.script else "`autocompile.prepare`"
        yield f"the compiler's cache is packed: with it, {starts} starts faster on a machine of this kind"


def _compiles_at_the_first_step(document: Document) -> str:
    return compiles(document.winner.startup_s, f"at the first {words_of(document.workload.kind).one}")


def _without(document: Document) -> Iterator[str]:
    """Yield the best candidate that needs no artifact, if it is not the winner, and after how many calls it pays."""
    without = document.without_artifact
    if without is None or without.winner.number == document.winner.number or without.winner.speedup is None:
        return
    one, speed = without.winner, without.winner.speedup.value
    line = f"Without an artifact {one.label} is best: {speed:.2f}x, {format_duration(one.startup_s or 0.0)} to start"
    segment = next((s for s in without.envelope if s.label == one.label and s.from_calls > 1), None)
    pays = segment.break_even if segment else None
    yield f"{line}, which is paid back after {format_count(pays)} calls." if pays else f"{line}."


def artifact_notes(artifact: ArtifactEntry) -> Iterator[str]:
    """Yield which calls the artifact takes, what serves other calls and changed weights, and what was not packed."""
    for accepted in artifact.inputs:
        yield f"takes {accepted}"
    if artifact.inputs:
        yield "other calls are served by the fallback, and counted in module.status"
    if artifact.standby:
        yield f"{_standby_for(artifact)} are served by {artifact.standby}, compiled, on the model's own weights"
    for absence in artifact.absences:
        yield f"not packed as {absence.serving}: {absence.reason}"


def _standby_for(artifact: ArtifactEntry) -> str:
    return " and ".join({"weights": "changed weights", "sizes": "other sizes"}[one] for one in artifact.standby_for)


def _short(reason: str) -> str:
    return reason if len(reason) <= _LONGEST else f"{reason[: _LONGEST - 3]}..."
