"""The finals: measure the best candidates, the baseline and plain `torch.compile` again in new processes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec.structs import replace

from autocompile.core.outcome import Failure, Measurement
from autocompile.core.trial import Trial
from autocompile.core.units import format_duration
from autocompile.runtime.catalogue import kind_of, serving_of
from autocompile.search.archive import Archive
from autocompile.search.choose.alike import likely_to_fail
from autocompile.search.judge.contender import Contender, gain, hopeless, open_between
from autocompile.search.judge.disturbed import disturbed_finalists
from autocompile.search.judge.verdict import Verdict
from autocompile.search.packages import drop, is_loaded, is_packed, submit_again
from autocompile.search.reserve import kept_for_packing_s, limits_of
from autocompile.search.run import Bench

# Two candidates that certainly differ by less than this count as equal: no further process is spent on comparing them.
_ALIKE = 0.02
# A new process starts.
_START_S = 1.0
# The assumed share of the first pass of an eager candidate that recurs in a new process.
_FIRST_PASS_SHARE = 0.15


def run_finals(bench: Bench, archive: Archive) -> None:
    """Measure the finalists in new processes, in interleaved rounds, as far as the budget allows.

    After the number of processes that the strategy asks for, the candidates that are still tied with the best are
    measured in further processes, up to `at_most`, until they are distinguishable or certainly equal. Candidates that
    lead, or read faster than the winner, go on as well, if too few of their processes were timed on a quiet host.
    """
    finalists = _finalists(bench, archive)
    if len(finalists) == 1:
        bench.ledger.decide("skipped", "finals", f"only {finalists[0].label} was measured")
        return
    entered = {trial.number for trial in finalists}
    for trial in archive.trials():  # plans on live weights stay: one may become the standby
        if trial.number not in entered and kind_of(trial.plan).holds_weights(trial.plan):
            drop(bench, trial.plan)
    left_out = sum(trial.measurement is not None for trial in archive.trials()) - len(finalists)
    if left_out:
        bench.ledger.decide("narrowed", "finals", f"{left_out} measured candidates are too far behind to win")
    bench.listener.on_stage("finals")
    durations: list[float] = []
    schedule = _Schedule(bench, archive, [trial.number for trial in finalists])
    for round_number, trial in _rounds(bench, archive, schedule):
        left = _left_s(bench, archive)
        if left < max(durations, default=_guess_s(bench, archive, trial)):
            archive.end_final(trial.number)
            reason = f"{format_duration(left)} left before packing, after {len(durations)} processes"
            bench.ledger.decide("skipped", "finals", f"{reason}; {trial.label} would have been next")
            _leave_out(bench, archive, schedule.suspects)
            _in_time_for_packing(bench, archive)
            return
        began = bench.ledger.elapsed_s
        _one_final(bench, archive, trial, round_number, left)
        durations.append(bench.ledger.elapsed_s - began)


def _in_time_for_packing(bench: Bench, archive: Archive) -> None:
    """Use the time that was reserved for packing for further finals, as long as the winner needs no packing.

    Only candidates that need no packing either are measured: those that may be as good as the best. At least half of
    the reserve is left, because a candidate that has to be packed may win after all.
    """
    at_most = bench.settings.strategy.finals.at_most
    while True:
        trials = {trial.number: trial for trial in archive.trials()}
        verdict = bench.verdict(list(trials.values()))
        if serving_of(trials[verdict.winner.number].plan).is_packed:
            return
        tied = [trials[c.number] for c in unsettled(verdict, bench.spread_over(list(trials.values())))]
        open_ = [t for t in tied if not serving_of(t.plan).is_packed and len(t.finals) < at_most]
        following = min(open_, key=lambda trial: len(trial.finals), default=None)
        left = bench.ledger.left_s() - kept_for_packing_s(bench, list(trials.values())) / 2
        if following is None or left < _START_S + sum(following.measurements[-1].phases_s.values()):
            return
        if not archive.begin_final(following.number):
            return
        _one_final(bench, archive, following, len(following.finals), left)


def _leave_out(bench: Bench, archive: Archive, suspects: Mapping[int, str]) -> None:
    """Disqualify candidates that are likely to fail in a final and had none; a later run may give them one."""
    for number, reason in suspects.items():
        told = f"no time was left for its final, in which it is likely to fail: {reason}"
        archive.disqualify(number, Failure(stage="finals", kind="timeout", message=told))
    if suspects:
        who = f"{len(suspects)} candidate{'s' * (len(suspects) != 1)} without a final"
        bench.ledger.decide("narrowed", "finals", f"{who} left out as likely to fail in one")


def _left_s(bench: Bench, archive: Archive) -> float:
    return bench.ledger.left_s(keeping_s=kept_for_packing_s(bench, archive.trials()))


def _rounds(bench: Bench, archive: Archive, schedule: _Schedule) -> Iterator[tuple[int, Trial]]:
    """Yield which trial to measure next, and in which round, without the finals that other runs have done.

    Each final is begun in the archive, and the caller has to end it there.
    """
    rules = bench.settings.strategy.finals
    yield from schedule.full_rounds()
    for round_number in range(rules.processes, rules.at_most):
        verdict = bench.verdict(archive.trials())
        by_number = {trial.number: trial for trial in archive.trials() if trial.number in schedule.finalists}
        disturbed = disturbed_finalists(verdict, by_number, rules.processes)[: rules.candidates]
        tied = [c for c in unsettled(verdict, bench.spread_over(archive.trials())) if c.number in by_number]
        going_on = [*disturbed, *(c for c in tied if c not in disturbed)]
        if not going_on:
            return
        if round_number == rules.processes:
            _tell_of_more(bench, "not distinguishable yet", [c for c in tied if c not in disturbed])
            _tell_of_more(bench, "timed next to other programs", disturbed)
        for number in (c.number for c in going_on):
            if len(by_number[number].finals) <= round_number and archive.begin_final(number):
                yield round_number, by_number[number]
        yield from schedule.full_rounds()


def _tell_of_more(bench: Bench, said: str, some: Sequence[Contender]) -> None:
    if some:
        labels = ", ".join(c.label for c in some)
        bench.ledger.decide("noted", "finals", f"{said}: {labels}; they are measured in further processes")


class _Schedule:
    """The order of the finals: the strategy's number of processes for each finalist, one round after the other.

    This run begins no final of a trial while another run measures one; it waits for it if there is nothing else to do.

    A candidate that lacks a final and therefore leaves the verdict open gets one before all others, and becomes a
    finalist if it is then ahead. A finalist that fails is replaced by the next best. Candidates that are likely to fail
    in the same way come last.
    """

    def __init__(self, bench: Bench, archive: Archive, finalists: list[int]) -> None:
        self.finalists = finalists
        self._bench, self._archive = bench, archive
        self._turns: dict[int, int] = {}
        self._replaced: set[int] = set()
        self._postponed: set[int] = set()

    def full_rounds(self) -> Iterator[tuple[int, Trial]]:
        """Yield which trial to measure next, until every finalist has had its rounds."""
        while (following := self._next()) is not None:
            trial, round_number = following
            self._turns[trial.number] = round_number + 1
            yield round_number, trial

    @property
    def suspects(self) -> dict[int, str]:
        """The measured trials that have passed no final and are likely to fail in one, each with the reason."""
        return self._kin({trial.number: trial for trial in self._archive.trials() if trial.measurement})

    def _next(self) -> tuple[Trial, int] | None:
        while open_ := self._open():
            for trial, round_number in open_:
                if self._archive.begin_final(trial.number):
                    return trial, round_number
            if _left_s(self._bench, self._archive) <= 0:
                return None
            self._bench.listener.on_task("finals, by other runs")
            self._archive.wait()
        return None

    def _open(self) -> list[tuple[Trial, int]]:
        """Return the trials that lack a final, each with its round: those with the fewest finals first.

        A candidate that leaves the verdict open comes before all of them, and is then the only one returned.
        """
        trials = {trial.number: trial for trial in self._archive.trials() if trial.measurement}
        verdict, kin = self._bench.verdict(list(trials.values())), self._kin(trials)
        owed = [c.number for c in verdict.owed if c.number not in self._turns]
        soon = next((number for number in owed if number not in kin), None)
        if soon is not None:
            return [(trials[soon], 0)]
        self._enter(verdict, trials, kin)
        turns = {n: max(self._turns.get(n, 0), len(trials[n].finals)) for n in self.finalists if n in trials}
        ordered = sorted(turns, key=lambda n: (n in kin, turns[n]))  # ties keep the finalists' order
        processes = self._bench.settings.strategy.finals.processes
        lacking = [(trials[n], turns[n]) for n in ordered if turns[n] < processes]
        self._tell({n: kin[n] for n in (*owed, *turns) if n in kin}, trials)
        return lacking or [(trials[n], 0) for n in owed[:1]]

    def _kin(self, trials: Mapping[int, Trial]) -> dict[int, str]:
        """Return the measured trials that are likely to fail in a final as others did, each with the reason."""
        entered = {*self.finalists, *self._turns}
        failed = [t for t in self._archive.trials() if t.number in entered and t.number not in trials]
        return likely_to_fail(failed, list(trials.values()))

    def _tell(self, kin: Mapping[int, str], trials: Mapping[int, Trial]) -> None:
        for number, reason in kin.items():
            if number not in self._postponed:
                self._postponed.add(number)
                self._bench.ledger.decide("noted", f"final of {trials[number].label}", f"postponed: {reason}")

    def _enter(self, verdict: Verdict, trials: Mapping[int, Trial], kin: Collection[int]) -> None:
        ahead = [c for c in (verdict.winner, verdict.tied[0]) if c.is_finalist and c.number not in self.finalists]
        self.finalists += dict.fromkeys(c.number for c in ahead)
        failed = {n for n in self.finalists if n not in trials} - self._replaced
        if failed:
            others = [t.number for t in _finalists(self._bench, self._archive) if t.number not in self.finalists]
            self.finalists += sorted(others, key=lambda number: number in kin)[: len(failed)]
            self._replaced |= failed


def unsettled(verdict: Verdict, calls: float) -> list[Contender]:
    """Return the best and those that may be as good, unless they are certainly equal; without the baseline.

    The baseline is timed in every process anyway.
    """
    best, *others = verdict.tied
    open_ = [c for c in others if abs(gain(best, c, calls)) + open_between(best, c, calls) > math.log1p(_ALIKE)]
    return [c for c in (best, *open_) if c.origin != "baseline"] if open_ else []


def _finalists(bench: Bench, archive: Archive) -> list[Trial]:
    """Return the finalists: the best that can still win, winners at other numbers of calls, plain and the baseline.

    The winner so far comes first, then the others by their time, and the baseline last: every process times the
    baseline for comparison anyway.
    """
    trials = archive.trials()
    verdict, calls = bench.verdict(trials), bench.spread_over(trials)
    ranking = verdict.ranking
    always = [c for c in ranking if c.origin in ("baseline", "plain")]
    others = [c for c in ranking if c not in always and c.is_feasible and not hopeless(c, ranking[0], calls)]
    chosen = others[: bench.settings.strategy.finals.candidates]
    if any(trial.plan.batch for trial in trials):  # there is also a verdict at the given batch
        given = bench.best([trial for trial in trials if not trial.plan.batch])
        chosen += [c for c in others if given is not None and c.number == given.number]
    elsewhere = {segment.label for segment in verdict.envelope}
    chosen += [c for c in ranking if c.label in elsewhere]
    entered = {c.number for c in (*chosen, *always)}
    by_number = {trial.number: trial for trial in trials}
    ordered = sorted((c for c in ranking if c.number in entered), key=lambda c: c.origin == "baseline")
    return [by_number[c.number] for c in ordered]


def _one_final(bench: Bench, archive: Archive, trial: Trial, round_number: int, left_s: float) -> None:
    """Measure a trial in one more process, with the screening's compiler cache if there is one.

    In its first final, the trial also trains or generates. `left_s`: how long the process may take.
    """
    bench.listener.on_task(f"final {round_number + 1}: {trial.label}")
    seed = 1000 * (round_number + 1) + trial.number
    learning_s = 0.0 if trial.finals else bench.learning_s
    task = bench.trial_task(trial.plan, bench.settings.strategy.finals.timing, seed, learning_s=learning_s)
    limits = limits_of(bench, left_s)
    try:
        reply = submit_again(bench, trial.label, task, limits).reply()
        _keep(bench, archive, trial, reply)
    finally:
        archive.end_final(trial.number)


def _keep(bench: Bench, archive: Archive, trial: Trial, reply: Measurement | Failure) -> None:
    if isinstance(reply, Failure):
        bench.ledger.decide("failed", f"final of {trial.label}", reply.message)
        if reply.kind != "timeout" and trial.origin != "baseline":
            archive.disqualify(trial.number, reply)
            drop(bench, trial.plan)
        return
    archive.add_final(trial.number, reply)
    bench.listener.on_trial(replace(trial, finals=(reply,)))


def _guess_s(bench: Bench, archive: Archive, trial: Trial) -> float:
    """Return the expected seconds of a final before any ran, from its screening and the cache that this run has."""
    assert trial.measurement is not None
    phases_s = trial.measurement.phases_s
    kind = kind_of(trial.plan)
    again = kind.warm_share if kind.compiles else _FIRST_PASS_SHARE
    if kind.compiles and not _is_cached_here(bench, archive, trial):
        again = 1.0
    if is_loaded(trial.plan):
        again = 0.0 if is_packed(bench, trial.plan) else 1.0
    return sum(phases_s.values()) - (1 - again) * phases_s.get("compile", 0.0)


def _is_cached_here(bench: Bench, archive: Archive, trial: Trial) -> bool:
    """Whether this run compiled the trial on this machine, where finals run, so that there is a cache for them."""
    if not archive.was_told_here(trial.number) or archive.recalled(trial.plan.key) is not None:
        return False
    return not bench.ledger.machine_of(trial.label)
