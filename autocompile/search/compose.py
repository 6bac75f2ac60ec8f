"""Compose the document that users read from the findings of a run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import UTC, datetime

from autocompile.artifact.integrity import manifest_digest
from autocompile.core.document import (
    SCHEMA_VERSION,
    ArtifactEntry,
    Document,
    TrialEntry,
    WithoutArtifact,
    WorkloadEntry,
)
from autocompile.core.outcome import Failure, Toolchain
from autocompile.core.profile import Profile
from autocompile.core.program import accepted_calls
from autocompile.core.trial import Trial
from autocompile.core.workload import Workload
from autocompile.runtime.snippet import snippet
from autocompile.search.as_is import of_the_script_as_it_is
from autocompile.search.judge.standings import failed_entry, measured_entry, ranked
from autocompile.search.judge.trade_offs import trade_offs
from autocompile.search.judge.verdict import Verdict
from autocompile.search.pack.delivery import Delivery
from autocompile.search.pack.standby import not_taken
from autocompile.search.packages import is_loaded
from autocompile.search.run import Bench


@dataclass(frozen=True)
class Findings:
    """The results of a run: the profile, the toolchain, the trials and the delivery.

    `as_given` is the verdict among the candidates at the given batch, if other batch sizes were tried.
    """

    profile: Profile
    toolchain: Toolchain
    as_given: Verdict | None
    delivery: Delivery

    @property
    def verdict(self) -> Verdict:
        """The verdict on all measured trials, with the winner as it is served."""
        return self.delivery.verdict

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials, with the winner as it is served."""
        return self.delivery.trials


def compose(bench: Bench, findings: Findings) -> Document:
    """Compose the document."""
    workload, settings, ledger, verdict = bench.workload, bench.settings, bench.ledger, findings.verdict
    calls = bench.calls(findings.trials)
    by_number = {trial.number: trial for trial in findings.trials}
    given = _given_batch(findings.trials)
    entries = [measured_entry(by_number[c.number], c, given) for c in verdict.ranking]
    measured = ranked(entries, verdict, calls, settings.goal.spread_over(calls))
    baseline = next(entry for entry in measured if entry.origin == "baseline")
    _tell(bench, verdict, measured)
    return Document(
        schema_version=SCHEMA_VERSION,
        workload=_workload_entry(workload),
        goal=settings.goal.entry(),
        calls=calls,
        tolerance=settings.goal.tolerance,
        strategy=settings.strategy.name,
        strategy_digest=settings.strategy.digest,
        seed=settings.seed,
        budget_s=ledger.budget_s,
        complete=not findings.delivery.stopped,
        is_feasible=verdict.is_feasible,
        baseline=baseline,
        winner=measured[0],
        winner_as_given=_as_given(findings, measured),
        artifact=_artifact_entry(bench, findings.delivery),
        reason=verdict.reason,
        snippet=snippet(
            measured[0].plan,
            device_type=workload.device_type,
            is_module=workload.is_module,
            training=workload.training,
            generation=workload.generation,
            loader=findings.profile.better_setting,
        ),
        margin=verdict.margin,
        noise_floor=verdict.winner.floor,
        envelope=verdict.envelope,
        trade_offs=trade_offs(verdict.ranking, {entry.number: entry.peak_memory_bytes or 0 for entry in measured}),
        trials=(*measured, *(failed_entry(trial) for trial in findings.trials if isinstance(trial.outcome, Failure))),
        profile=findings.profile,
        decisions=tuple(ledger.decisions),
        environment=bench.environment,
        toolchain_s=findings.toolchain.cold_s,
        time_spent_s={purpose: round(seconds, 3) for purpose, seconds in ledger.spent_s().items()},
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        notices=ledger.notices,
        open_to=tuple(contender.label for contender in verdict.owed),
        stopped=findings.delivery.stopped,
        without_artifact=_without_artifact(bench, findings.delivery.in_process),
        lanes=tuple(ledger.lanes),
    )


def _tell(bench: Bench, verdict: Verdict, measured: tuple[TrialEntry, ...]) -> None:
    bench.ledger.decide("preferred", verdict.winner.label, verdict.reason)
    bench.ledger.notice(of_the_script_as_it_is(bench.workload, measured))


def _given_batch(trials: tuple[Trial, ...]) -> float | None:
    """Return the number of samples in a call as given; None if no measured trial shows it."""
    return next((t.plan.batch / t.batch_factor for t in trials if t.plan.batch and t.measurement), None)


def _as_given(findings: Findings, measured: tuple[TrialEntry, ...]) -> TrialEntry | None:
    if findings.as_given is None:
        return None
    return next(entry for entry in measured if entry.number == findings.as_given.winner.number)


def _artifact_entry(bench: Bench, delivery: Delivery) -> ArtifactEntry:
    manifest = delivery.manifest
    return ArtifactEntry(
        runtime=manifest.serving.runtime,
        start=manifest.serving.start,
        label=manifest.label,
        digest=manifest_digest(bench.artifact),
        size_bytes=sum(file.size_bytes for file in manifest.all_files),
        absences=manifest.absences,
        inputs=tuple(line for program in manifest.programs for line in accepted_calls(program)),
        standby=manifest.standby.plan.runtime if manifest.standby else "",
        standby_for=not_taken(manifest.plan) if manifest.standby else (),
        envelope=manifest.envelope,
        untimed=delivery.untimed,
    )


def _without_artifact(bench: Bench, trials: tuple[Trial, ...]) -> WithoutArtifact | None:
    """Return the best candidate that needs no artifact; None if the goal does not load artifacts anyway."""
    if not bench.settings.goal.loads_artifacts:
        return None
    goal = dataclasses.replace(bench.settings.goal, deploy="jit", processes=1)
    some = [trial for trial in trials if trial.measurement and not is_loaded(trial.plan)]
    verdict = bench.verdict(some, goal)
    by_number, given, calls = {trial.number: trial for trial in some}, _given_batch(trials), bench.calls(trials)
    entries = [measured_entry(by_number[c.number], c, given) for c in verdict.ranking]
    return WithoutArtifact(ranked(entries, verdict, calls, goal.spread_over(calls))[0], verdict.envelope)


def _workload_entry(workload: Workload) -> WorkloadEntry:
    return WorkloadEntry(
        name=workload.name,
        kind=workload.kind,
        device=workload.device,
        fingerprint=workload.fingerprint,
        model_fingerprint=workload.model_fingerprint,
        is_module=workload.is_module,
        parameter_count=workload.parameter_count,
        parameter_bytes=workload.parameter_bytes,
        signatures=workload.signatures,
        training=workload.training,
        script=workload.script,
        generation=workload.generation,
        gpus=workload.gpus,
    )
