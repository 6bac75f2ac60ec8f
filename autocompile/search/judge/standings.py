"""The document's table of ranked trials, and the same table for another number of calls."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from msgspec.structs import replace

from autocompile.core.document import Document, TrialEntry, VerdictWord
from autocompile.core.errors import InvalidValue
from autocompile.core.outcome import Failure
from autocompile.core.trial import Trial
from autocompile.core.words import words_of
from autocompile.runtime.snippet import snippet
from autocompile.search.judge.contender import Contender, beats
from autocompile.search.judge.trade_offs import trade_offs
from autocompile.search.judge.verdict import Verdict, judge


def at_calls(document: Document, calls: int) -> Document:
    """Return the same study, judged for a process that makes `calls` calls.

    Winner, ranks, reason, snippet and trade-offs are for that number of calls.

    Raises InvalidValue for fewer than one call.
    """
    if calls < 1:
        raise InvalidValue(f"{calls} calls is not a number of calls", where="calls", remedy="give 1 or more")
    measured = [entry for entry in document.trials if entry.status == "measured"]
    verdict = judge(
        [_contender(document, entry) for entry in measured], calls, document.margin, words_of(document.workload.kind)
    )
    entries = ranked(measured, verdict, calls, calls)
    winner = entries[0]
    given = _given_batch(document, measured, entries, calls)
    workload = document.workload
    return replace(
        document,
        calls=float(calls),
        goal=replace(document.goal, calls=calls, horizon_s=None, objective="time"),
        winner=winner,
        winner_as_given=given,
        baseline=next(entry for entry in entries if entry.origin == "baseline"),
        is_feasible=verdict.is_feasible,
        reason=verdict.reason,
        open_to=tuple(contender.label for contender in verdict.owed),
        snippet=snippet(
            winner.plan,
            device_type=workload.device.split(":")[0],
            is_module=workload.is_module,
            training=workload.training,
            generation=workload.generation,
            loader=document.profile.better_setting,
        ),
        trade_offs=trade_offs(verdict.ranking, {entry.number: entry.peak_memory_bytes or 0 for entry in entries}),
        trials=(*entries, *(entry for entry in document.trials if entry.status == "failed")),
    )


def _given_batch(
    document: Document, measured: Sequence[TrialEntry], entries: Sequence[TrialEntry], calls: int
) -> TrialEntry | None:
    """Return the winner among the candidates at the given batch; None if no other batch size was tried."""
    if document.winner_as_given is None:
        return None
    contenders = [_contender(document, entry) for entry in measured if entry.batch is None]
    number = entries[0].number
    if entries[0].batch is not None:
        number = judge(contenders, calls, document.margin).winner.number
    return next(entry for entry in entries if entry.number == number)


def ranked(entries: Sequence[TrialEntry], verdict: Verdict, calls: float, spread_over: float) -> tuple[TrialEntry, ...]:
    """Return the measured trials in the verdict's order; `spread_over`: the number of calls that it is for."""
    by_number = {entry.number: entry for entry in entries}
    baseline = next(c for c in verdict.ranking if c.origin == "baseline")
    return tuple(
        replace(
            by_number[contender.number],
            rank=rank,
            verdict=_word(contender, baseline, verdict, spread_over),
            amortized_ms=contender.per_call_s(calls).value * 1e3,
        )
        for rank, contender in enumerate(verdict.ranking, 1)
    )


def _word(contender: Contender, baseline: Contender, verdict: Verdict, calls: float) -> VerdictWord:
    if contender is verdict.winner:
        return "winner" if verdict.is_feasible else "nearest"
    if not contender.is_feasible:
        return "beyond a limit"
    if contender is baseline:
        return "baseline"
    if beats(contender, baseline, calls):
        return "faster"
    if contender.is_disturbed(calls) or baseline.is_disturbed(calls):
        return "not judged"
    return "slower" if beats(baseline, contender, calls) else "not distinguishable"


def measured_entry(trial: Trial, contender: Contender, given_batch: float | None) -> TrialEntry:
    """Return a measured trial, not ranked yet; `given_batch`: samples in a call of the baseline, if that is known."""
    assert trial.measurement is not None
    latest = trial.measurements[-1]
    return replace(
        _entry(trial),
        is_finalist=contender.is_finalist,
        latency_ms=median(m.latency.p50_ms for m in trial.measurements),
        latency=latest.latency,
        speedup=contender.ratio.inverse(),
        speedup_of_one_process=contender.one_more.inverse(),
        paired_ms=contender.latency_s.scaled(1e3),
        compile_s=trial.measurement.startup.pack_s or trial.measurement.startup.compile_s,
        startup_s=contender.startup_s,
        packing_s=contender.packing_s,
        excess=contender.excess,
        error=trial.measurement.accuracy.error,
        error_limit=trial.measurement.accuracy.limit,
        peak_memory_bytes=max(m.peak_memory_bytes for m in trial.measurements),
        processes=contender.processes,
        batch=trial.plan.batch or None,
        samples_per_s=given_batch / contender.latency_s.value if given_batch else None,
        counters=trial.measurement.counters,
        contamination=latest.contamination,
        noisy=trial.is_noisy,
        learned=next((m.learned for m in trial.finals if m.learned is not None), None),
        generated=next((m.generated for m in trial.finals if m.generated is not None), None),
    )


def failed_entry(trial: Trial) -> TrialEntry:
    """Return the entry of a trial that ended without a measurement."""
    assert isinstance(trial.outcome, Failure)
    word: VerdictWord = "wrong result" if trial.outcome.kind == "wrong_result" else "failed"
    return replace(_entry(trial), status="failed", verdict=word, failure=trial.outcome)


def _entry(trial: Trial) -> TrialEntry:
    """Return the fields that every trial has, however it ended. The verdict is filled in later."""
    return TrialEntry(
        rank=None,
        number=trial.number,
        label=trial.label,
        config=trial.candidate.values,
        plan=trial.plan,
        origin=trial.origin,
        status="measured",
        verdict="not distinguishable",
        changes=trial.changes,
    )


def _contender(document: Document, entry: TrialEntry) -> Contender:
    assert entry.speedup is not None
    assert entry.paired_ms is not None
    return Contender(
        number=entry.number,
        label=entry.label,
        origin=entry.origin,
        changes=entry.changes,
        processes=entry.processes,
        is_finalist=entry.is_finalist,
        ratio=entry.speedup.inverse(),
        latency_s=entry.paired_ms.scaled(1e-3),
        startup_s=entry.startup_s or 0.0,
        packing_s=entry.packing_s or 0.0,
        floor=document.noise_floor,
        excess=entry.excess,
        noisy=entry.noisy,
    )
