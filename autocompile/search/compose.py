"""What was found, as the document that users read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median

from msgspec.structs import replace

from autocompile.artifact.integrity import manifest_digest
from autocompile.core.document import SCHEMA_VERSION, ArtifactEntry, Document, TrialEntry, WorkloadEntry
from autocompile.core.document import Verdict as VerdictWord
from autocompile.core.envelope import Line, lower_envelope
from autocompile.core.manifest import accepted_calls
from autocompile.core.outcome import Failure, Toolchain
from autocompile.core.profile import Profile
from autocompile.core.trial import Trial
from autocompile.core.workload import Workload
from autocompile.search.bench import Bench
from autocompile.search.judge import Contender, Verdict, beats
from autocompile.search.packing import Artifact
from autocompile.space.snippet import snippet


@dataclass(frozen=True)
class Findings:
    """What a run leaves: the profile, the toolchain, the verdict, all trials, and what was packed."""

    profile: Profile
    toolchain: Toolchain
    verdict: Verdict
    trials: tuple[Trial, ...]
    artifact: Artifact
    complete: bool


def compose(bench: Bench, findings: Findings) -> Document:
    """Put a run's findings into the document."""
    workload, settings, ledger, verdict = bench.workload, bench.settings, bench.ledger, findings.verdict
    baseline = next(c for c in verdict.ranking if c.trial.origin == "baseline")
    calls = settings.goal.calls_for(baseline.latency_s.value)
    measured = [_measured(c, baseline, verdict, calls, rank) for rank, c in enumerate(verdict.ranking, 1)]
    failed = [_failed(trial) for trial in findings.trials if isinstance(trial.outcome, Failure)]
    by_number = {entry.number: entry for entry in measured}
    ledger.decide("preferred", verdict.winner.trial.label, verdict.reason)
    return Document(
        schema_version=SCHEMA_VERSION,
        workload=_workload_entry(workload),
        calls=calls,
        tolerance=settings.goal.tolerance,
        strategy=settings.strategy.name,
        strategy_digest=settings.strategy.digest,
        seed=settings.seed,
        budget_s=ledger.budget_s,
        complete=findings.complete,
        baseline=by_number[baseline.trial.number],
        winner=by_number[verdict.winner.trial.number],
        artifact=_artifact_entry(bench, findings.artifact, verdict),
        reason=verdict.reason,
        snippet=snippet(verdict.winner.trial.plan, device_type=workload.device_type, is_module=workload.is_module),
        margin=verdict.margin,
        envelope=verdict.envelope,
        trials=(*measured, *failed),
        profile=findings.profile,
        decisions=tuple(ledger.decisions),
        environment=bench.environment,
        toolchain_s=findings.toolchain.cold_s,
        time_spent_s={purpose: round(seconds, 3) for purpose, seconds in ledger.spent_s().items()},
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _measured(one: Contender, baseline: Contender, verdict: Verdict, calls: float, rank: int) -> TrialEntry:
    trial = one.trial
    assert trial.measurement is not None
    latest = trial.measurements[-1]
    return TrialEntry(
        rank=rank,
        number=trial.number,
        label=trial.label,
        config=trial.candidate.values,
        plan=trial.plan,
        origin=trial.origin,
        status="measured",
        verdict=_word(one, baseline, verdict, calls),
        latency_ms=median(m.latency.p50_ms for m in trial.measurements),
        latency=latest.latency,
        speedup=one.ratio.inverse(),
        amortized_ms=one.per_call_s(calls).value * 1e3,
        compile_s=trial.measurement.startup.compile_s,
        startup_s=trial.startup_s,
        error=trial.measurement.accuracy.error,
        error_limit=trial.measurement.accuracy.limit,
        peak_memory_bytes=trial.measurement.peak_memory_bytes,
        processes=len(trial.measurements),
        counters=trial.measurement.counters,
        contamination=latest.contamination,
    )


def _word(one: Contender, baseline: Contender, verdict: Verdict, calls: float) -> VerdictWord:
    if one is verdict.winner:
        return "winner"
    if one is baseline:
        return "baseline"
    if beats(one, baseline, calls):
        return "faster"
    return "slower" if beats(baseline, one, calls) else "not distinguishable"


def _failed(trial: Trial) -> TrialEntry:
    assert isinstance(trial.outcome, Failure)
    return TrialEntry(
        rank=None,
        number=trial.number,
        label=trial.label,
        config=trial.candidate.values,
        plan=trial.plan,
        origin=trial.origin,
        status="failed",
        verdict="wrong result" if trial.outcome.kind == "wrong_result" else "failed",
        failure=trial.outcome,
    )


def _artifact_entry(bench: Bench, artifact: Artifact, verdict: Verdict) -> ArtifactEntry:
    manifest, measured = artifact.manifest, artifact.measured
    entry = ArtifactEntry(
        tier=manifest.tier,
        label=manifest.label,
        digest=manifest_digest(bench.artifact),
        size_bytes=sum(file.size_bytes for file in manifest.files),
        absences=manifest.absences,
        inputs=tuple(line for program in manifest.programs for line in accepted_calls(program)),
    )
    if artifact.latency is None:
        return entry
    own = Line(f"{manifest.label}, packed", artifact.startup_s, artifact.latency.value)
    others = [Line(c.trial.label, c.startup_s, c.latency_s.value) for c in verdict.ranking]
    return replace(
        entry,
        startup_s=artifact.startup_s,
        latency_ms=median(m.latency.p50_ms for m in measured),
        speedup=artifact.speedup,
        error=measured[0].accuracy.error,
        error_limit=measured[0].accuracy.limit,
        processes=len(measured),
        envelope=lower_envelope([own, *others]),
    )


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
    )
