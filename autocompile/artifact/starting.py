"""Describes what a start costs if something is compiled, or why there is none. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autocompile.core.errors import InvalidRecommendation
from autocompile.core.manifest import Absence, Manifest
from autocompile.core.plan import Plan
from autocompile.core.serving import Serving
from autocompile.core.units import format_duration
from autocompile.runtime.catalogue import kind_of


def start_of(manifest: Manifest, serving: Serving, plan: Plan | None = None) -> float | None:
    """Return the seconds that a plan, by default the manifest's own, takes to start in this way; None if unknown."""
    own = manifest.plan if plan is None else plan
    return next((s.startup_s for s in manifest.served if s.serving == serving and s.plan == own), None)


def compiles(startup_s: float | None, when: str = "at the first call") -> str:
    """Return a phrase such as `compiles at the first call, about 24 s`."""
    return f"compiles {when}{_some(startup_s)}"


def starts_the_compiler(startup_s: float | None) -> str:
    """Return a phrase such as `starts the compiler at the first call, about 4 s`."""
    return f"starts the compiler at the first call{_some(startup_s)}"


def untimed(manifest: Manifest) -> list[str]:
    """Return a note if the artifact was packed and verified, but not timed after loading."""
    own = next((s for s in manifest.served if s.serving == manifest.serving and s.plan == manifest.plan), None)
    return ["packed and verified, but not timed after loading"] if own is not None and own.expected else []


def why_not_packed(absences: Sequence[Absence]) -> str:
    """Return the reason of each absence, or only once if all have the same reason."""
    reasons = list(dict.fromkeys(absence.reason for absence in absences))
    if len(reasons) <= 1:
        return "".join(reasons)
    return "; ".join(f"{absence.serving}: {absence.reason}" for absence in absences)


def either(remedy: str, other: str) -> str:
    """Return `remedy`, or `other`; only `other` if there is no remedy."""
    return f"{remedy}, or {other}" if remedy else other


def refused(path: str | Path, fault: str, remedy: str = "") -> InvalidRecommendation:
    """Return the error of a load that may serve nothing other than the artifact, because of a fault."""
    return InvalidRecommendation(fault, where=str(path), remedy=either(remedy, "tune it again here"))


def not_packed(manifest: Manifest, said: str) -> str:
    """Return that the artifact was not packed, why, and what to do about its start, which `said` describes."""
    why, plan = why_not_packed(manifest.absences), manifest.plan
    background = "" if kind_of(plan).serves_one_thread(plan) else ", or load it with background=True"
    because = f" ({why})" if why else ""
    return f"{manifest.label} {said}: it was not packed{because}; call it once before production{background}"


def own_limits(plan: Plan) -> list[str]:
    """Return notes if a plan serves only the weights that it was built with, or only calls of one thread."""
    own = kind_of(plan)
    copies = (
        "it has a copy of weights, so eager serves if the model's weights change" if own.copies_weights(plan) else ""
    )
    return [*filter(None, (copies, own.serves_one_thread(plan)))]


def _some(startup_s: float | None) -> str:
    return "" if startup_s is None else f", about {format_duration(startup_s)}"
