"""What a start costs where something is compiled, in words. No torch."""

from __future__ import annotations

from collections.abc import Sequence

from autocompile.core.manifest import Absence, Manifest
from autocompile.core.plan import Plan
from autocompile.core.serving import Serving
from autocompile.core.units import format_duration
from autocompile.runtime.catalogue import kind_of


def start_of(manifest: Manifest, serving: Serving, plan: Plan | None = None) -> float | None:
    """Seconds that a plan, by default the manifest's own, takes to start in this way, as far as that is known."""
    own = manifest.plan if plan is None else plan
    return next((s.startup_s for s in manifest.served if s.serving == serving and s.plan == own), None)


def compiles(startup_s: float | None, when: str = "at the first call") -> str:
    """`compiles at the first call, some 24 s`."""
    return f"compiles {when}{_some(startup_s)}"


def starts_the_compiler(startup_s: float | None) -> str:
    """`starts the compiler at the first call, some 4 s`."""
    return f"starts the compiler at the first call{_some(startup_s)}"


def untimed(manifest: Manifest) -> list[str]:
    """A note on an artifact that was packed and verified, and not timed as loaded."""
    own = next((s for s in manifest.served if s.serving == manifest.serving and s.plan == manifest.plan), None)
    return ["packed and verified, but not timed after loading"] if own is not None and own.expected else []


def why_not_packed(absences: Sequence[Absence]) -> str:
    """The reason of each; one that all of them have is said once."""
    reasons = list(dict.fromkeys(absence.reason for absence in absences))
    if len(reasons) <= 1:
        return "".join(reasons)
    return "; ".join(f"{absence.serving}: {absence.reason}" for absence in absences)


def either(remedy: str, other: str) -> str:
    """What to do: the one or the other, where there is a remedy."""
    return f"{remedy}, or {other}" if remedy else other


def not_packed(manifest: Manifest, said: str) -> str:
    """That it was not packed, why, and what to do about what is `said` of its start."""
    why, plan = why_not_packed(manifest.absences), manifest.plan
    background = "" if kind_of(plan).serves_one_thread(plan) else ", or load it with background=True"
    because = f" ({why})" if why else ""
    return f"{manifest.label} {said}: it was not packed{because}; call it once before it has to answer{background}"


def own_limits(plan: Plan) -> list[str]:
    """What a plan does that keeps weights from being followed, and calls of other threads from being served."""
    own = kind_of(plan)
    return [*filter(None, (own.keeps_weights(plan), own.serves_one_thread(plan)))]


def _some(startup_s: float | None) -> str:
    return "" if startup_s is None else f", about {format_duration(startup_s)}"
