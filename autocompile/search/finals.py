"""The best few, the baseline and plain `torch.compile` again: a process has a bias of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

from msgspec.structs import replace

from autocompile.core.job import Limits
from autocompile.core.outcome import Failure, Measurement
from autocompile.core.trial import Trial
from autocompile.core.units import format_duration
from autocompile.search.archive import Archive
from autocompile.search.bench import Bench
from autocompile.search.contender import Contender, gain, hopeless, open_between
from autocompile.search.judge import Verdict

_FIRST_GUESS_S = 2.0
# Two that surely differ by less than this are one: no further process is spent on telling them apart.
_ALIKE = 0.02


def run_finals(bench: Bench, archive: Archive) -> None:
    """Measure the finalists in fresh processes, rounds interleaved, as far as the budget goes.

    After as many as the strategy asks for, those that are still tied with the best go on, up to
    its `at_most`, until they are told apart or surely alike.
    """
    finalists = _finalists(bench, archive)
    if len(finalists) == 1:
        bench.ledger.decide("skipped", "finals", f"only {finalists[0].label} was measured")
        return
    left_out = sum(trial.measurement is not None for trial in archive.trials()) - len(finalists)
    if left_out:
        bench.ledger.decide("narrowed", "finals", f"{left_out} measured candidates are too far behind to win")
    bench.listener.on_stage("finals")
    durations: list[float] = []
    for round_number, trial in _rounds(bench, archive, finalists):
        left = bench.ledger.left_s(reserve=bench.settings.strategy.stages.packing)
        if left < max(durations, default=_FIRST_GUESS_S):
            found = f"{format_duration(left)} left after {len(durations)} processes"
            bench.ledger.decide("skipped", "finals", f"{found}; {trial.label} was to be next")
            return
        began = bench.ledger.elapsed_s
        _one_final(bench, archive, trial, round_number)
        durations.append(bench.ledger.elapsed_s - began)


def _rounds(bench: Bench, archive: Archive, finalists: list[Trial]) -> Iterator[tuple[int, Trial]]:
    """Whom to measure next, and in which round; what an earlier run has done is left out."""
    rules = bench.settings.strategy.finals
    yield from _full_rounds(bench, archive, finalists)
    for round_number in range(rules.processes, rules.at_most):
        tied = unsettled(bench.verdict(archive.trials()), bench.spread_over(archive.trials()))
        if not tied:
            return
        if round_number == rules.processes:
            labels = ", ".join(c.label for c in tied)
            bench.ledger.decide("noted", "finals", f"not told apart yet: {labels}; they go on in further processes")
        by_number = {trial.number: trial for trial in archive.trials()}
        for number in (c.number for c in tied):
            if len(by_number[number].finals) <= round_number:
                yield round_number, by_number[number]


def _full_rounds(bench: Bench, archive: Archive, finalists: list[Trial]) -> Iterator[tuple[int, Trial]]:
    """As many as the strategy asks for; who fails in one makes room for the next best."""
    entered = {trial.number for trial in finalists}
    while finalists:
        for round_number, trial in product(range(bench.settings.strategy.finals.processes), finalists):
            if len(trial.finals) <= round_number and trial.number in _standing(archive):
                yield round_number, trial
        failed = len({trial.number for trial in finalists} - _standing(archive))
        finalists = [trial for trial in _finalists(bench, archive) if trial.number not in entered][:failed]
        entered |= {trial.number for trial in finalists}


def _standing(archive: Archive) -> set[int]:
    """Who has a measurement, and has not failed since."""
    return {trial.number for trial in archive.trials() if trial.measurement}


def unsettled(verdict: Verdict, calls: float) -> list[Contender]:
    """The best and those that may be as good, unless they are surely alike; without the baseline, which is in all."""
    best, *others = verdict.tied
    open_ = [c for c in others if abs(gain(best, c, calls)) + open_between(best, c, calls) > math.log1p(_ALIKE)]
    return [c for c in (best, *open_) if c.origin != "baseline"] if open_ else []


def _finalists(bench: Bench, archive: Archive) -> list[Trial]:
    """The best few that can still win, who is best for another number of calls, plain `torch.compile`, the baseline."""
    trials = archive.trials()
    verdict, calls = bench.verdict(trials), bench.spread_over(trials)
    ranking = verdict.ranking
    always = [c for c in ranking if c.origin in ("baseline", "plain")]
    others = [c for c in ranking if c not in always and c.is_feasible and not hopeless(c, ranking[0], calls)]
    chosen = others[: bench.settings.strategy.finals.candidates]
    if any(trial.plan.batch for trial in trials):  # there is a verdict at the given batch, too
        given = bench.best([trial for trial in trials if not trial.plan.batch])
        chosen += [c for c in others if given is not None and c.number == given.number and c not in chosen]
    elsewhere = {segment.label for segment in verdict.envelope}
    chosen += [c for c in ranking if c.label in elsewhere and c not in chosen and c not in always]
    by_number = {trial.number: trial for trial in trials}
    return [by_number[c.number] for c in chosen + always]


def _one_final(bench: Bench, archive: Archive, trial: Trial, round_number: int) -> None:
    """One more process. Its compiler cache is kept from the screening: only its speed is asked for."""
    bench.listener.on_task(f"final {round_number + 1}: {trial.label}")
    seed = 1000 * (round_number + 1) + trial.number
    task = bench.trial_task(trial.plan, bench.settings.strategy.finals.timing, seed)
    limits = Limits(total_s=max(1.0, bench.ledger.left_s()), memory_bytes=bench.memory_limit())
    reply = bench.runner.run(task, limits, cache=trial.plan.key)
    assert isinstance(reply, Measurement | Failure)
    bench.ledger.charge(reply.phases_s)
    if isinstance(reply, Failure):
        bench.ledger.decide("failed", f"final of {trial.label}", reply.message)
        if reply.kind != "timeout" and trial.origin != "baseline":
            archive.disqualify(trial, reply)
        return
    archive.add_final(trial, reply)
    bench.listener.on_trial(replace(trial, finals=(reply,)))
