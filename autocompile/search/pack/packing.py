"""Packing the winner: in the best way that it can be, and what it was then measured to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

import msgspec

from autocompile.artifact.integrity import entry_for, listed, write_manifest
from autocompile.artifact.starting import why_not_packed
from autocompile.artifact.store import settle
from autocompile.core.errors import RunnerError
from autocompile.core.estimate import Estimate
from autocompile.core.identity import Identity
from autocompile.core.job import Packed, PackTask
from autocompile.core.manifest import (
    MANIFEST_VERSION,
    Absence,
    Manifest,
    Requirements,
    Served,
)
from autocompile.core.outcome import Failure, Measurement
from autocompile.core.serving import Serving, Start
from autocompile.core.trial import Trial
from autocompile.core.units import format_duration
from autocompile.processor import instructions
from autocompile.runtime.catalogue import kind_of, servings_of
from autocompile.search.judge.contender import TYPICAL_LOAD_S, Contender, contender_as_loaded, starting_in
from autocompile.search.judge.verdict import Verdict
from autocompile.search.pack.loading import INTERRUPTED, AsLoaded, measure_loaded
from autocompile.search.pack.offers import offers
from autocompile.search.reserve import limits_of, packing_of
from autocompile.search.run import Bench

_BEST_FIRST: tuple[Start, ...] = get_args(Start)


@dataclass(frozen=True)
class Artifact:
    """What was packed, and how it was measured: latency in seconds; nothing where only the configuration is kept.

    `startup_s`: as measured, else as expected. `untimed`: why what was packed and verified was not timed as loaded.
    `excess`: by constraint, how far what was timed is beyond it. `stopped`: why packing ended early, "" if it did not.
    """

    manifest: Manifest
    measured: tuple[Measurement, ...] = ()
    startup_s: float = 0.0
    latency: Estimate | None = None
    speedup: Estimate | None = None
    untimed: str = ""
    excess: dict[str, float] = field(default_factory=dict)
    stopped: str = ""

    @property
    def serving(self) -> Serving:
        """How it serves."""
        return self.manifest.serving

    @property
    def is_packed(self) -> bool:
        """Whether there is more than the configuration."""
        return self.serving.is_packed


@dataclass(frozen=True)
class Winner:
    """What is to be packed: the trial that won, where it stands, and all who were measured."""

    trial: Trial
    own: Contender
    trials: tuple[Trial, ...]


def winner_of(verdict: Verdict, trials: Sequence[Trial]) -> Winner:
    """The verdict's winner, with its trial."""
    return Winner(
        trial=next(trial for trial in trials if trial.number == verdict.winner.number),
        own=verdict.winner,
        trials=tuple(trial for trial in trials if trial.measurement),
    )


def pack_winner(bench: Bench, trials: Sequence[Trial]) -> tuple[Verdict, Artifact]:
    """Pack the verdict's winner into `bench.artifact`, as far as the budget goes.

    Where production starts from an artifact, what its start costs is known only now: if that makes another one the
    winner, that one is packed in its place, unless it can only be packed worse.
    """
    verdict = bench.verdict(trials)
    winner = winner_of(verdict, trials)
    artifact = _pack(bench, winner)
    if bench.settings.goal.deploy == "jit" or not servings_of(winner.trial.plan):
        return verdict, artifact
    revised = bench.verdict(trials, _starts_s(winner, artifact))
    if revised.winner.number == verdict.winner.number:
        return revised, artifact
    found = f"{winner.own.label} starts in {format_duration(_start_s(winner.trial, artifact))} ({artifact.serving})"
    bench.ledger.decide("preferred", revised.winner.label, found)
    second = _pack_instead(bench, winner_of(revised, trials), artifact)
    return (verdict if second.manifest is artifact.manifest else revised), second


def _pack_instead(bench: Bench, winner: Winner, first: Artifact) -> Artifact:
    """What is packed of another winner; or the first artifact, which is good, where that other's would be worse."""
    if first.stopped and servings_of(winner.trial.plan):  # nothing is run any more
        return _kept(bench, first, first.stopped)
    try:
        second = _pack(bench, winner)
    except (KeyboardInterrupt, RunnerError) as fault:
        if not first.is_packed:
            raise
        if isinstance(fault, RunnerError):
            return _kept(bench, first, str(fault))
        bench.ledger.decide("stopped", "packing", "stopped by hand")
        return _kept(bench, replace(first, stopped=INTERRUPTED), INTERRUPTED)
    if not servings_of(winner.trial.plan) or _rank(second) <= _rank(first):
        return replace(second, stopped=first.stopped or second.stopped)
    absent = why_not_packed(second.manifest.absences)
    reason = f"{winner.own.label} can only be served as {second.serving}: {absent}"
    return _kept(bench, replace(first, stopped=second.stopped), reason)


def _kept(bench: Bench, first: Artifact, reason: str) -> Artifact:
    """The artifact that was packed first, put back; its files are still there."""
    write_manifest(bench.artifact, first.manifest)
    label = first.manifest.label
    bench.ledger.decide("preferred", label, f"{reason}; the artifact of {label} ({first.serving}) is kept")
    return first


def _starts_s(winner: Winner, artifact: Artifact) -> dict[str, float]:
    """What starting costs, by plan: what the packed one costs, as others of the same model are packed alike."""
    return {trial.plan.key: _start_s(trial, artifact) for trial in winner.trials if servings_of(trial.plan)}


def _start_s(trial: Trial, artifact: Artifact) -> float:
    return artifact.startup_s if artifact.is_packed else trial.startup_s


def _pack(bench: Bench, winner: Winner) -> Artifact:
    """Each way is tried in turn, the best first; one that cannot be packed, or does not hold, is absent for a reason.

    What starts as it is needs no packing.
    """
    absences: list[Absence] = []
    servings = servings_of(winner.trial.plan)
    if servings:
        bench.listener.on_stage("packing")
    for serving in servings:
        packed = _pack_as(bench, winner, serving, tuple(absences))
        if isinstance(packed, Artifact):
            return packed
        bench.ledger.decide("skipped", f"packing as {serving}", packed)
        absences.append(Absence(serving, packed))
    return _configuration(bench, winner, tuple(absences))


def pack_nothing(bench: Bench, winner: Winner, reason: str) -> Artifact:
    """An artifact that is the configuration alone, for this reason."""
    absences = tuple(Absence(serving, reason) for serving in servings_of(winner.trial.plan))
    return _configuration(bench, winner, absences)


def _configuration(bench: Bench, winner: Winner, absences: tuple[Absence, ...]) -> Artifact:
    manifest = _manifest(bench, winner, kind_of(winner.trial.plan).unpacked, absences)
    write_manifest(bench.artifact, manifest)
    return Artifact(manifest, startup_s=winner.trial.startup_s)


def _rank(artifact: Artifact) -> int:
    return _BEST_FIRST.index(artifact.serving.start)


def _pack_as(bench: Bench, winner: Winner, serving: Serving, absences: tuple[Absence, ...]) -> Artifact | str:
    """The artifact that serves so, or why there is none."""
    trial = winner.trial
    packing, left_s = packing_of(bench, trial, winner.trials), bench.ledger.left_s()
    limit_s = packing.limit_s(serving, left_s)
    if not limit_s:
        took = format_duration(packing.takes_s[serving])
        return f"{format_duration(left_s)} of the budget left, too little to pack it, which takes some {took}"
    bench.listener.on_task(f"packing as {serving}: {trial.label}")
    task = PackTask(
        workload=bench.workload,
        plan=trial.plan,
        serving=serving,
        reference=str(bench.reference),
        acceptance=bench.trial_task(trial.plan, bench.settings.strategy.finals.timing, 0).acceptance,
        directory=str(bench.artifact / serving.name),
    )
    cache = f"{trial.plan.key}-{serving.name}" if serving.start == "load" else trial.plan.key
    reply = bench.reply_to(task, limits_of(bench, limit_s), Packed, cache=cache)
    if isinstance(reply, Failure):
        ended = f"packing it took more than the {format_duration(limit_s)} that were left for it"
        return ended if reply.kind == "timeout" else reply.message.splitlines()[0]
    for note in reply.notes:
        bench.ledger.decide("noted", f"packing as {serving}", note)
    manifest = with_files(bench.artifact, _manifest(bench, winner, serving, absences, reply))
    write_manifest(bench.artifact, manifest)
    loaded = measure_loaded(bench, trial, packing.loaded_s)
    if loaded.fault:
        return loaded.fault
    if loaded.stopped:
        bench.ledger.decide("stopped", "packing", "stopped by hand while the artifact was timed")
    if loaded.measured:
        return _timed(bench, winner, manifest, loaded)
    bench.ledger.decide("noted", f"packing as {serving}", f"packed and verified, not timed as loaded: {loaded.untimed}")
    return replace(_untimed(bench, winner, manifest, reply, loaded.untimed), stopped=loaded.stopped)


def _timed(bench: Bench, winner: Winner, manifest: Manifest, loaded: AsLoaded) -> Artifact:
    first, *more = loaded.measured
    finals = loaded.measured if more else ()
    trial: Trial = msgspec.structs.replace(winner.trial, outcome=first, finals=finals, origin="search")
    packed = contender_as_loaded(trial, winner.trials, bench.settings.goal)
    startup_s, latency, speedup = packed.startup_s, packed.latency_s, packed.ratio.inverse()
    served = Served(manifest.serving, manifest.label, trial.plan, startup_s, latency.value, speedup)
    final = _serving(bench, winner, manifest, served, packed)
    return Artifact(final, loaded.measured, startup_s, latency, speedup, excess=packed.excess, stopped=loaded.stopped)


def _untimed(bench: Bench, winner: Winner, manifest: Manifest, reply: Packed, reason: str) -> Artifact:
    """It is kept, as packing verified it; what is expected of it is the configuration's own latency."""
    assert winner.trial.measurement is not None
    startup_s = TYPICAL_LOAD_S
    if manifest.serving.start == "cache":  # as long as compiling from that cache took, the compiler's import included
        startup_s = winner.trial.measurement.startup.import_s + reply.phases_s.get("compile", 0.0)
    one = winner.own
    served = Served(
        manifest.serving,
        manifest.label,
        manifest.plan,
        startup_s,
        one.latency_s.value,
        one.ratio.inverse(),
        expected=True,
    )
    packed = starting_in(one, startup_s, bench.settings.goal)
    return Artifact(_serving(bench, winner, manifest, served, packed), startup_s=startup_s, untimed=reason)


def _serving(bench: Bench, winner: Winner, manifest: Manifest, served: Served, packed: Contender) -> Manifest:
    """The manifest that says how the artifact itself serves, and what else is best for how many calls."""
    offered = offers(bench, winner.trial, winner.trials, packed)
    final = msgspec.structs.replace(manifest, served=(served, *offered.served), envelope=offered.envelope)
    write_manifest(bench.artifact, final)
    return final


def _manifest(
    bench: Bench,
    winner: Winner,
    serving: Serving,
    absences: tuple[Absence, ...],
    packed: Packed | None = None,
) -> Manifest:
    environment, trial = bench.environment, winner.trial
    library = kind_of(trial.plan).version()
    here = Requirements(environment.torch, environment.architecture, instructions(), capability="", library=library)
    offered = offers(bench, trial, winner.trials)
    return Manifest(
        manifest_version=MANIFEST_VERSION,
        label=trial.label,
        plan=trial.plan,
        device_type=bench.workload.device_type,
        identity=identity_of_packed(bench.workload.identity, packed),
        serving=serving,
        absences=absences,
        requirements=packed.requirements if packed else here,
        programs=packed.programs if packed else (),
        batch_factor=trial.batch_factor,
        served=offered.served,
        envelope=offered.envelope,
        weights=packed.weights if packed else {},
    )


def identity_of_packed(identity: Identity, packed: Packed | None) -> Identity:
    """The model's, with the attributes that matter to what was packed: those that its programs hold, if it has any."""
    if packed is None or packed.attributes is None:
        return identity
    return msgspec.structs.replace(identity, attributes=packed.attributes)


def with_files(directory: Path, manifest: Manifest) -> Manifest:
    """The manifest with the files that a child left for it, in a directory that is named by what they hold."""
    name = settle(directory, manifest.serving.name)
    programs = tuple(msgspec.structs.replace(program, directory=name) for program in manifest.programs)
    files = tuple(entry_for(directory, path) for path in listed(directory, name))
    return msgspec.structs.replace(manifest, programs=programs, files=files)
