"""Pack the winner and measure it as loaded, until the verdict holds for what `load` serves."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from autocompile.artifact.integrity import write_manifest
from autocompile.core.errors import RunnerError
from autocompile.core.manifest import Absence, Manifest
from autocompile.core.outcome import Failure
from autocompile.core.trial import Trial
from autocompile.core.units import format_duration
from autocompile.runtime.catalogue import kind_of, serving_of
from autocompile.search.judge.verdict import Verdict
from autocompile.search.pack.loading import INTERRUPTED
from autocompile.search.pack.offers import offers
from autocompile.search.pack.packing import Delivered, not_packed, packed
from autocompile.search.pack.standby import standby
from autocompile.search.packages import drop
from autocompile.search.run import Bench


@dataclass(frozen=True)
class Delivery:
    """The verdict over `trials`, as they are served; `bench.artifact` holds the winner.

    `in_process` holds the same trials as they run without an artifact. `untimed`: why the packed and verified artifact
    was not timed as loaded, or "". `stopped`: why the run ended early, or "".
    """

    trials: tuple[Trial, ...]
    in_process: tuple[Trial, ...]
    verdict: Verdict
    manifest: Manifest
    untimed: str = ""
    stopped: str = ""


def deliver_winner(bench: Bench, trials: Sequence[Trial], stopped: str = "") -> Delivery:
    """Pack the winner, and measure what production loads. If another candidate wins then, pack that one.

    Once the run is `stopped`, for a reason, no process is started any more, and the candidates that can be served are
    judged.
    """
    known = list(trials)
    done: dict[int, Delivered] = {}
    if not stopped:
        bench.listener.on_stage("packing")
    while (verdict := bench.verdict(known)).winner.number not in done:
        trial = next(trial for trial in known if trial.number == verdict.winner.number)
        try:
            own = not_packed(bench, trial, stopped) if stopped else packed(bench, trial, known)
        except (KeyboardInterrupt, RunnerError) as stop:
            stopped = _told(bench, stop)
            continue
        if isinstance(own, Failure):
            bench.ledger.decide("failed", f"packing as {serving_of(trial.plan)}", own.message)
            drop(bench, trial.plan)
            known = [replace(t, outcome=own, finals=()) if t.number == trial.number else t for t in known]
            continue
        done[trial.number] = own
        stopped = own.stopped or stopped
        known = [own.trial if t.number == trial.number else t for t in known]
        _tell_change(bench, verdict, bench.verdict(known))
    return _delivered(bench, done[verdict.winner.number], verdict, known, _in_process(trials, known), stopped)


def _in_process(before: Sequence[Trial], served: Sequence[Trial]) -> tuple[Trial, ...]:
    """Return the trials as they run without an artifact: most as they were measured before anything was packed.

    A candidate that nothing is packed for runs in the same way in both cases, so its last figures count.
    """
    last = {trial.number: trial for trial in served}
    return tuple(last[trial.number] if kind_of(trial.plan).packs_as is None else trial for trial in before)


def _told(bench: Bench, stop: BaseException) -> str:
    """Return why packing ended early, and write it into the journal."""
    stopped = str(stop) if isinstance(stop, RunnerError) else INTERRUPTED
    bench.ledger.decide("stopped", "packing", stopped)
    return stopped


def _tell_change(bench: Bench, before: Verdict, after: Verdict) -> None:
    if after.winner.number != before.winner.number:
        one = next(c for c in after.ranking if c.number == before.winner.number)
        each, start = format_duration(one.latency_s.value), format_duration(one.startup_s)
        found = f"as loaded {one.label} takes {each} a call and {start} to start"
        bench.ledger.decide("preferred", after.winner.label, found)


def _delivered(
    bench: Bench, own: Delivered, verdict: Verdict, trials: list[Trial], in_process: tuple[Trial, ...], stopped: str
) -> Delivery:
    """Move the winner into `bench.artifact`, with the other candidates that it can serve, which run `in_process`."""
    bare = own.manifest
    shutil.rmtree(bench.artifact, ignore_errors=True)
    shutil.move(own.directory, bench.artifact)
    try:
        beside = standby(bench, own.trial, trials, may_run=not stopped)
    except (KeyboardInterrupt, RunnerError) as stop:
        stopped = _told(bench, stop)
        beside = standby(bench, own.trial, trials, may_run=False)
    offered = offers(bench, verdict, own.trial, in_process, bare.serving, expected=bool(own.untimed))
    manifest = replace(
        bare,
        label=own.trial.label,
        batch_factor=own.trial.batch_factor,
        served=offered.served,
        envelope=offered.envelope,
        absences=(*bare.absences, *([beside] if isinstance(beside, Absence) else [])),
        standby=None if isinstance(beside, Absence) else beside,
    )
    write_manifest(bench.artifact, manifest)
    return Delivery(tuple(trials), in_process, verdict, manifest, own.untimed, stopped)
