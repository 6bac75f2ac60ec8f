"""Packing the winner: the best tier that it can have, and what that tier was measured to be."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Literal

from msgspec.structs import replace

from autocompile.artifact.integrity import entry_for, listed, write_manifest
from autocompile.artifact.store import settle
from autocompile.core.estimate import Estimate
from autocompile.core.job import Limits, Packed, PackTask
from autocompile.core.manifest import MANIFEST_VERSION, Absence, Manifest, Requirements, Served
from autocompile.core.outcome import Failure, Measurement
from autocompile.core.trial import Trial
from autocompile.core.units import format_duration
from autocompile.host import instructions
from autocompile.search.bench import Bench
from autocompile.search.judge import Verdict
from autocompile.search.spread import ratio_of, spread_of

_PROCESSES = 3
_FIRST_GUESS_S = 15.0
_STEP_GUESS_S = 5.0
_TIERS: tuple[Literal["aot", "cache"], ...] = ("aot", "cache")


@dataclass(frozen=True)
class Artifact:
    """What was packed, and how it was measured: start-up and latency in seconds; nothing of jit and eager."""

    manifest: Manifest
    measured: tuple[Measurement, ...] = ()
    startup_s: float = 0.0
    latency: Estimate | None = None
    speedup: Estimate | None = None


def pack(bench: Bench, verdict: Verdict) -> Artifact:
    """Pack the winner into `bench.artifact`, as far as the budget goes.

    Each tier is tried in turn, the best first; one that cannot be packed, or does not hold when it is
    measured, is absent for a reason. What compiles nothing needs no packing.
    """
    winner = verdict.winner.trial
    absences: list[Absence] = []
    if winner.plan.compiles:
        bench.listener.on_stage("packing")
        for tier in _TIERS:
            found = _pack_tier(bench, verdict, tier, tuple(absences))
            if isinstance(found, Artifact):
                return found
            bench.ledger.decide("skipped", f"tier {tier}", found)
            absences.append(Absence(tier, found))
    return _configuration(bench, verdict, tuple(absences))


def pack_nothing(bench: Bench, verdict: Verdict, reason: str) -> Artifact:
    """An artifact that is the configuration alone, for this reason."""
    tiers = _TIERS if verdict.winner.trial.plan.compiles else ()
    return _configuration(bench, verdict, tuple(Absence(tier, reason) for tier in tiers))


def _configuration(bench: Bench, verdict: Verdict, absences: tuple[Absence, ...]) -> Artifact:
    manifest = _manifest(bench, verdict, "jit" if verdict.winner.trial.plan.compiles else "eager", absences)
    write_manifest(bench.artifact, manifest)
    return Artifact(manifest)


def _pack_tier(
    bench: Bench, verdict: Verdict, tier: Literal["aot", "cache"], absences: tuple[Absence, ...]
) -> Artifact | str:
    """The artifact of one tier, or why there is none."""
    trial = verdict.winner.trial
    if trial.plan.backend != "inductor":
        return f"the backend {trial.plan.backend} packs nothing"
    assert trial.measurement is not None
    needed = _STEP_GUESS_S if tier == "cache" else min(_FIRST_GUESS_S, trial.measurement.startup.compile_s)
    if bench.ledger.left_s() < needed:
        return f"{format_duration(bench.ledger.left_s())} of the budget left, too little to pack it"
    bench.listener.on_task(f"packing, tier {tier}: {trial.label}")
    task = PackTask(
        workload=bench.workload,
        plan=trial.plan,
        tier=tier,
        reference=str(bench.reference),
        acceptance=bench.trial_task(trial.plan, bench.settings.strategy.finals.timing, 0).acceptance,
        directory=str(bench.artifact / tier),
    )
    cache = f"{trial.plan.key}-{tier}" if tier == "aot" else trial.plan.key
    reply = bench.runner.run(task, _limits(bench), cache=cache)
    assert isinstance(reply, Packed | Failure)
    bench.ledger.charge(reply.phases_s)
    if isinstance(reply, Failure):
        ended = "the budget ended while it was packed"
        return ended if reply.kind == "timeout" else reply.message.splitlines()[0]
    for note in reply.notes:
        bench.ledger.decide("noted", f"tier {tier}", note)
    manifest = _with_files(bench, _manifest(bench, verdict, tier, absences, reply))
    write_manifest(bench.artifact, manifest)
    return _measured(bench, verdict, manifest)


def _measured(bench: Bench, verdict: Verdict, manifest: Manifest) -> Artifact | str:
    """The artifact as it is when loaded in fresh processes, or what went wrong there."""
    trial = verdict.winner.trial
    found: list[Measurement] = []
    for process in range(_PROCESSES):
        longest = max((sum(m.phases_s.values()) for m in found), default=0.0)
        if found and bench.ledger.left_s() < longest:
            break
        bench.listener.on_task(f"artifact in process {process + 1} of {_PROCESSES}: {trial.label}")
        timing = bench.settings.strategy.finals.timing
        task = replace(bench.trial_task(trial.plan, timing, 1000 + process), artifact=str(bench.artifact))
        reply = bench.runner.run(task, _limits(bench), cache=f"{trial.plan.key}-artifact-{process}")
        assert isinstance(reply, Measurement | Failure)
        bench.ledger.charge(reply.phases_s)
        if isinstance(reply, Measurement):
            found.append(reply)
        elif reply.kind == "timeout":
            break
        else:
            return f"it did not hold when it was loaded: {reply.message.splitlines()[0]}"
    if not found:
        return "the budget ended before it was measured"
    return _served(bench, verdict, manifest, found)


def _served(bench: Bench, verdict: Verdict, manifest: Manifest, found: list[Measurement]) -> Artifact:
    baseline = next(c for c in verdict.ranking if c.trial.origin == "baseline")
    trial: Trial = replace(verdict.winner.trial, outcome=found[0], finals=tuple(found[1:]), origin="search")
    others = [c.trial for c in verdict.ranking if c.trial.number != trial.number]
    ratio = ratio_of(trial, spread_of([*others, trial]))
    latency = ratio.scaled(baseline.latency_s.value)
    startup_s = median(m.startup.total_s for m in found)
    served = Served(manifest.tier, startup_s, latency.value, ratio.inverse())
    final = replace(manifest, served=(served, *manifest.served))
    write_manifest(bench.artifact, final)
    return Artifact(final, tuple(found), startup_s, latency, ratio.inverse())


def _manifest(
    bench: Bench,
    verdict: Verdict,
    tier: Literal["aot", "cache", "jit", "eager"],
    absences: tuple[Absence, ...],
    packed: Packed | None = None,
) -> Manifest:
    environment, trial = bench.environment, verdict.winner.trial
    here = Requirements(environment.torch, environment.architecture, instructions(), capability="")
    baseline = next(c for c in verdict.ranking if c.trial.origin == "baseline")
    served = tuple(
        Served("jit" if one.trial.plan.compiles else "eager", one.startup_s, one.latency_s.value, one.ratio.inverse())
        for one in ((verdict.winner,) if verdict.winner is baseline else (verdict.winner, baseline))
    )
    return Manifest(
        manifest_version=MANIFEST_VERSION,
        label=trial.label,
        plan=trial.plan,
        device_type=bench.workload.device_type,
        model_fingerprint=bench.workload.model_fingerprint,
        tier=tier,
        absences=absences,
        requirements=packed.requirements if packed else here,
        programs=packed.programs if packed else (),
        served=served,
    )


def _with_files(bench: Bench, manifest: Manifest) -> Manifest:
    """The manifest with the files of its tier, in a directory that is named by what they hold."""
    name = settle(bench.artifact, manifest.tier)
    programs = tuple(
        replace(p, file=f"{name}/{p.file}", constants_file=f"{name}/{p.constants_file}" if p.constants_file else "")
        for p in manifest.programs
    )
    files = tuple(entry_for(bench.artifact, path) for path in listed(bench.artifact, name))
    return replace(manifest, programs=programs, files=files)


def _limits(bench: Bench) -> Limits:
    return Limits(total_s=max(1.0, bench.ledger.left_s()), memory_bytes=bench.memory_limit())
