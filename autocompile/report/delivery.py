"""How production will start, in words: packed and timed, packed and not timed, or not packed, and why."""

from __future__ import annotations

from collections.abc import Iterator

from autocompile.artifact.starting import compiles, starts_the_compiler, why_not_packed
from autocompile.core.document import ArtifactEntry, Document
from autocompile.core.limits import beyond
from autocompile.core.units import format_duration

# Of a reason, in a headline: an exporter's own words can be long.
_LONGEST = 120


def packed_words(document: Document) -> str:
    """For the headline: what `load` serves, and where it compiles, for how long and why; "" if nothing compiles."""
    artifact, winner = document.artifact, document.winner
    if artifact.label != winner.label or artifact.start == "none":
        return ""
    if not artifact.serving.is_packed:
        reason = _reason(artifact)
        return f" Not packed{f': {reason}' if reason else ''}; `load` {compiles(_start_s(document))}."
    serving = str(artifact.serving)
    if artifact.start == "cache":
        serving += f", which {starts_the_compiler(artifact.expected_startup_s)}"
        serving += "".join(f"; not as {absence.serving}: {_short(absence.reason)}" for absence in artifact.absences)
    if artifact.speedup is None or artifact.startup_s is None:
        return f" Packed, verified, not timed as loaded: {artifact.untimed} ({serving})."
    speed, start = f"{artifact.speedup.value:.2f}x", f"{format_duration(artifact.startup_s)} to start"
    return f" Packed: {speed}, {start} ({serving}).{missed(artifact)}"


def missed(artifact: ArtifactEntry) -> str:
    """` As packed it misses max_latency by 25.0%.`, for what was timed as loaded; "" if it keeps every limit."""
    which = beyond(artifact.excess)
    return f" As packed it misses {which}." if which else ""


def delivery(document: Document) -> Iterator[str]:
    """The same as sentences."""
    artifact = document.artifact
    if artifact.speedup is not None and artifact.startup_s is not None:
        speed = artifact.speedup
        yield (
            f"Packed ({artifact.serving}) it starts in {format_duration(artifact.startup_s)} and runs at "
            f"{speed.value:.2f}x eager's speed ({speed.low:.2f} to {speed.high:.2f}), measured as loaded in "
            f"{artifact.processes} fresh processes.{missed(artifact)}"
        )
    elif artifact.untimed:
        yield f"It is packed ({artifact.serving}) and verified, but not timed as loaded: {artifact.untimed}."
    elif artifact.start == "compile":
        yield f"It is not packed, so `load` {compiles(_start_s(document))}."
    for absence in artifact.absences[:1]:
        yield f"It is not packed as {absence.serving}: {absence.reason}."


def _start_s(document: Document) -> float | None:
    """What compiling at the first call takes; documents of before have it in the winner's own row."""
    expected_s = document.artifact.expected_startup_s
    return document.winner.startup_s if expected_s is None else expected_s


def _reason(artifact: ArtifactEntry) -> str:
    return _short(why_not_packed(artifact.absences))


def _short(reason: str) -> str:
    return reason if len(reason) <= _LONGEST else f"{reason[: _LONGEST - 3]}..."
