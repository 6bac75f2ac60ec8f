"""The run in about a dozen sentences, each claim with its number: the text of `rec.explain()`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from autocompile.core.document import Document, TrialEntry
from autocompile.core.estimate import Estimate
from autocompile.core.units import format_bytes, format_count, format_duration, format_ms
from autocompile.core.words import words_of
from autocompile.report.delivery import delivery
from autocompile.report.generated import generated_words
from autocompile.report.learned import learned_words
from autocompile.report.limits import is_beyond, verdict_words
from autocompile.report.step_profile import phases_sentence

_MOST_NAMED = 3
_ACTIONS = {
    "narrowed": "Left out",
    "seeded": "Tried first",
    "chosen": "Chosen, in this order",
    "stopped": "Ended early",
}


def story(document: Document) -> Iterator[str]:
    """Yield the run from the workload to the artifact, in chronological order."""
    yield from _workload(document)
    yield from _search(document)
    yield from _plain(document)
    yield from _verdict(document)
    yield from _payback(document)
    yield from _certainty(document)
    yield from _unseen(document)
    yield from delivery(document)


def _workload(document: Document) -> Iterator[str]:
    profile, workload, here = document.profile, document.workload, document.environment
    device = workload.gpus[0].name if workload.gpus else here.cpu
    kinds, words = len(workload.signatures), words_of(workload.kind)
    yield (
        f"{workload.name} takes {format_ms(profile.baseline_ms.value)} a {words.one} in eager on {device} "
        f"({format_count(workload.parameter_count)} parameters, {kinds} kind{'s' * (kinds != 1)} of {words.one})."
    )
    if profile.bound != "unknown":
        yield f"It is bound by {profile.bound}: {profile.evidence}."
    if profile.step and profile.step.phases:
        yield f"Time of a {words.one}: {phases_sentence(profile.step)}."
    if profile.graph_breaks:
        first = profile.graph_breaks[0]
        yield f"Graph breaks: {len(profile.graph_breaks)}, the first at {first.file}:{first.line}."


def _search(document: Document) -> Iterator[str]:
    failed = Counter(e.failure.kind.replace("_", " ") for e in document.trials if e.failure is not None)
    measured = [entry for entry in document.trials if entry.status == "measured"]
    ended = f"; {sum(failed.values())} failed ({', '.join(f'{n} {k}' for k, n in failed.items())})" if failed else ""
    spent = sum(document.time_spent_s.values())
    yield (
        f"{len(measured)} candidate{'s were' if len(measured) != 1 else ' was'} measured in {format_duration(spent)}, "
        f"{_share(document.time_spent_s.get('compiling', 0.0), spent)} of it compiling{ended}."
    )
    for action, words in _ACTIONS.items():
        found = [d for d in document.decisions if d.action == action and d.subject not in ("search", "finals")]
        if found:
            more = f"; and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
            yield f"{words}: {'; '.join(f'{d.subject} ({d.reason})' for d in found[:_MOST_NAMED])}{more}."


def _plain(document: Document) -> Iterator[str]:
    plain = next((entry for entry in document.trials if entry.origin == "plain"), None)
    if plain is None:
        return
    if plain.failure is not None:
        yield f"Plain torch.compile: {plain.failure.kind.replace('_', ' ')}, {plain.failure.message.splitlines()[0]}."
    elif plain.speedup is not None:
        yield (
            f"Plain torch.compile runs at {_times(plain.speedup)} and takes "
            f"{format_duration(plain.startup_s or 0.0)} to start."
        )


def _verdict(document: Document) -> Iterator[str]:
    winner = document.winner
    if winner.origin == "baseline":
        yield f"Eager {'wins' if document.is_feasible else 'comes nearest'}: {document.reason}."
        return
    assert winner.speedup is not None
    words = words_of(document.workload.kind)
    name = "The winner" if document.is_feasible else "The nearest"
    yield (
        f"{name} is {winner.label}: {_times(winner.speedup)}, {format_ms(winner.latency_ms or 0.0)} a {words.one}, "
        f"{format_bytes(winner.peak_memory_bytes or 0)} at its peak."
    )
    yield f"Why this one: {document.reason}."
    behind = _runner_up(document)
    if behind is not None and behind.speedup is not None:
        against = "" if is_beyond(behind) else " against eager"
        yield f"Runner-up: {behind.label} ({_times(behind.speedup)}; {verdict_words(behind)}{against})."


def _runner_up(document: Document) -> TrialEntry | None:
    others = [e for e in document.trials if e.status == "measured" and e.origin not in ("baseline", "plain")]
    return next((entry for entry in others if entry.number != document.winner.number), None)


def _payback(document: Document) -> Iterator[str]:
    winner = document.winner
    words = words_of(document.workload.kind)
    segment = next((s for s in document.envelope if s.label == winner.label and s.from_calls > 1), None)
    if segment is not None and segment.break_even is not None:
        high = f"to {format_count(segment.from_high)}" if segment.from_high else "or never"
        share = f", with its share of compiling, {format_duration(winner.packing_s)}," if winner.packing_s else ""
        yield (
            f"Its start-up of {format_duration(winner.startup_s or 0.0)}{share} is paid back after "
            f"{format_count(segment.break_even)} {words.many} ({format_count(segment.from_low)} {high}); "
            f"the goal assumes {format_count(document.calls)} per process."
        )


def _certainty(document: Document) -> Iterator[str]:
    winner = document.winner
    noisy = " The host was noisy." if winner.contamination and winner.contamination.noisy else ""
    yield (
        f"It was measured in {winner.processes} process{'es' * (winner.processes != 1)}; differences below "
        f"{document.margin:.1%} do not count in this run.{_single_process(winner)}{noisy}"
    )
    if winner.error is not None and document.profile.reference:
        yield (
            f"Its outputs differ from {document.profile.reference} by {winner.error:.1e}; eager's differ by "
            f"{document.profile.error_floor:.1e}, and {winner.error_limit or 0.0:.1e} is allowed."
        )
    if winner.generated is not None:
        yield f"Whole calls of generate: {generated_words(winner.generated)}."
    learned = winner.learned
    if learned is not None:
        off = f"the losses differ by {learned.off:.1e}, and {learned.limit:.1e} is allowed"
        same = f"; with the same random numbers, {off}"
        yield f"It was {learned_words(learned)}{'' if learned.skipped else same}."


def _single_process(winner: TrialEntry) -> str:
    """Return between which speed-ups single processes lie; "" for the baseline, or if that is not recorded."""
    single = winner.speedup_of_one_process
    if single is None or winner.origin == "baseline":
        return ""
    return f" A single process may run at {single.low:.2f}x to {single.high:.2f}x eager's speed (95%)."


def _unseen(document: Document) -> Iterator[str]:
    """Yield how the winner handles sizes that no sample has."""
    counters = document.winner.counters
    if counters is None or not counters.unseen:
        return
    if counters.unseen_recompiles:
        yield "For a size that no sample has, it compiles again, which takes as long as its start-up."
    elif counters.unseen_captures:
        yield (
            "For a size that no sample has, it is also correct and does not compile, but it captures another CUDA "
            "graph: the first calls take longer, and the graph uses additional memory."
        )
    else:
        yield "For a size that no sample has, it is also correct and does not compile again."


def _times(speedup: Estimate) -> str:
    return f"{speedup.value:.2f}x eager's speed ({speedup.low:.2f} to {speedup.high:.2f})"


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "none"
