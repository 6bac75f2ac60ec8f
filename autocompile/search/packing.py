"""Packing the winner: the best tier that it can have, and what that tier was measured to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

from msgspec.structs import replace

from autocompile.artifact.integrity import entry_for, listed, write_manifest
from autocompile.artifact.store import settle
from autocompile.core.estimate import Estimate
from autocompile.core.job import Limits, Packed, PackTask
from autocompile.core.manifest import MANIFEST_VERSION, Absence, Manifest, Program, Requirements, Served, Tier
from autocompile.core.outcome import Failure, Measurement
from autocompile.core.trial import Trial
from autocompile.core.units import format_duration
from autocompile.processor import instructions
from autocompile.search.bench import Bench
from autocompile.search.contender import Contender
from autocompile.search.judge import Verdict, envelope_of
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

    @property
    def tier(self) -> Tier:
        """What is served by."""
        return self.manifest.tier


@dataclass(frozen=True)
class Winner:
    """What is to be packed: the trial that won, where it and the baseline stand, and all who were measured."""

    trial: Trial
    own: Contender
    baseline: Contender
    ranking: tuple[Contender, ...]
    trials: tuple[Trial, ...]


def winner_of(verdict: Verdict, trials: Sequence[Trial]) -> Winner:
    """The verdict's winner, with its trial."""
    return Winner(
        trial=next(trial for trial in trials if trial.number == verdict.winner.number),
        own=verdict.winner,
        baseline=next(c for c in verdict.ranking if c.origin == "baseline"),
        ranking=verdict.ranking,
        trials=tuple(trial for trial in trials if trial.measurement),
    )


def pack_winner(bench: Bench, trials: Sequence[Trial]) -> tuple[Verdict, Artifact]:
    """Pack the verdict's winner into `bench.artifact`, as far as the budget goes.

    Where production starts from an artifact, what its start costs is known only now: if that makes another one the
    winner, that one is packed in its place.
    """
    verdict = bench.verdict(trials)
    winner = winner_of(verdict, trials)
    artifact = _pack(bench, winner)
    if bench.settings.goal.deploy == "jit" or not winner.trial.plan.compiles:
        return verdict, artifact
    revised = bench.verdict(trials, _starts_s(winner, artifact))
    if revised.winner.number == verdict.winner.number:
        return revised, artifact
    found = f"{winner.own.label} starts in {format_duration(_start_s(winner.trial, artifact))} (tier {artifact.tier})"
    bench.ledger.decide("preferred", revised.winner.label, found)
    return revised, _pack(bench, winner_of(revised, trials))


def _starts_s(winner: Winner, artifact: Artifact) -> dict[str, float]:
    """What starting costs, by plan: what the packed one costs, as others of the same model are packed alike."""
    return {trial.plan.key: _start_s(trial, artifact) for trial in winner.trials if trial.plan.compiles}


def _start_s(trial: Trial, artifact: Artifact) -> float:
    return artifact.startup_s if artifact.latency is not None else trial.startup_s


def _pack(bench: Bench, winner: Winner) -> Artifact:
    """Each tier is tried in turn, the best first; one that cannot be packed, or does not hold, is absent for a reason.

    What compiles nothing needs no packing.
    """
    absences: list[Absence] = []
    if winner.trial.plan.compiles:
        bench.listener.on_stage("packing")
        for tier in _TIERS:
            found = _pack_tier(bench, winner, tier, tuple(absences))
            if isinstance(found, Artifact):
                return found
            bench.ledger.decide("skipped", f"tier {tier}", found)
            absences.append(Absence(tier, found))
    return _configuration(bench, winner, tuple(absences))


def pack_nothing(bench: Bench, winner: Winner, reason: str) -> Artifact:
    """An artifact that is the configuration alone, for this reason."""
    tiers = _TIERS if winner.trial.plan.compiles else ()
    return _configuration(bench, winner, tuple(Absence(tier, reason) for tier in tiers))


def _configuration(bench: Bench, winner: Winner, absences: tuple[Absence, ...]) -> Artifact:
    manifest = _manifest(bench, winner, "jit" if winner.trial.plan.compiles else "eager", absences)
    write_manifest(bench.artifact, manifest)
    return Artifact(manifest)


def _pack_tier(
    bench: Bench, winner: Winner, tier: Literal["aot", "cache"], absences: tuple[Absence, ...]
) -> Artifact | str:
    """The artifact of one tier, or why there is none."""
    trial = winner.trial
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
    manifest = with_files(bench.artifact, _manifest(bench, winner, tier, absences, reply))
    write_manifest(bench.artifact, manifest)
    return _measured(bench, winner, manifest)


def _measured(bench: Bench, winner: Winner, manifest: Manifest) -> Artifact | str:
    """The artifact as it is when loaded in fresh processes, or what went wrong there."""
    trial = winner.trial
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
    return _served(bench, winner, manifest, found)


def _served(bench: Bench, winner: Winner, manifest: Manifest, found: list[Measurement]) -> Artifact:
    trial: Trial = replace(winner.trial, outcome=found[0], finals=tuple(found), origin="search")
    others = [other for other in winner.trials if other.number != trial.number]
    ratio = ratio_of(trial, spread_of([*others, trial]))
    latency = ratio.scaled(winner.baseline.latency_s.value)
    startup_s = median(m.startup.total_s for m in found)
    served = Served(manifest.tier, manifest.label, trial.plan, startup_s, latency.value, ratio.inverse())
    final = replace(manifest, served=(served, *manifest.served))
    write_manifest(bench.artifact, final)
    return Artifact(final, tuple(found), startup_s, latency, ratio.inverse())


def _manifest(
    bench: Bench,
    winner: Winner,
    tier: Literal["aot", "cache", "jit", "eager"],
    absences: tuple[Absence, ...],
    packed: Packed | None = None,
) -> Manifest:
    environment, trial = bench.environment, winner.trial
    here = Requirements(environment.torch, environment.architecture, instructions(), capability="")
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
        batch_factor=trial.batch_factor,
        served=tuple(_configured(one, winner) for one in _worth_serving(winner)),
    )


def _worth_serving(winner: Winner) -> list[Contender]:
    """The winner, the baseline, and who is best for some number of calls: what `load(calls=)` chooses among.

    With the winner's batch only: production is to feed one size.
    """
    sizes = {trial.number: trial.plan.batch for trial in winner.trials}
    segments = {s.label for s in envelope_of([c for c in winner.ranking if c.is_feasible] or winner.ranking)}
    return [
        c
        for c in winner.ranking
        if c.number == winner.own.number
        or (c.origin == "baseline" and c.is_feasible)
        or (c.label in segments and sizes[c.number] == winner.trial.plan.batch)
    ]


def _configured(one: Contender, winner: Winner) -> Served:
    """How one that is not packed serves: compiled at the first call, or eager; its start-up is the cold one."""
    trial = next(trial for trial in winner.trials if trial.number == one.number)
    tier: Literal["jit", "eager"] = "jit" if trial.plan.compiles else "eager"
    return Served(tier, trial.label, trial.plan, trial.startup_s, one.latency_s.value, one.ratio.inverse())


def with_files(directory: Path, manifest: Manifest) -> Manifest:
    """The manifest with the files that a child left for its tier, in a directory that is named by what they hold."""
    name = settle(directory, manifest.tier)
    programs = tuple(_within(name, program) for program in manifest.programs)
    files = tuple(entry_for(directory, path) for path in listed(directory, name))
    return replace(manifest, programs=programs, files=files)


def _within(directory: str, program: Program) -> Program:
    file, constants_file, placement_file = (
        path and f"{directory}/{path}" for path in (program.file, program.constants_file, program.placement_file)
    )
    return replace(program, file=file, constants_file=constants_file, placement_file=placement_file)


def _limits(bench: Bench) -> Limits:
    return Limits(total_s=max(1.0, bench.ledger.left_s()), memory_bytes=bench.memory_limit())
