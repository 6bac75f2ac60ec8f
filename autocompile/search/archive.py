"""What a search knows: measured trials, trials under way, results of earlier runs, and the next candidate."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from autocompile.core.candidate import Candidate, Value
from autocompile.core.outcome import Failure, Measurement
from autocompile.core.plan import Plan
from autocompile.core.serde import Record, from_json, to_json
from autocompile.core.trial import Origin, Trial
from autocompile.search.run import Standing
from autocompile.search.strategy import SearchRules
from autocompile.search.study.advisor import Advisor, distribution
from autocompile.search.study.family import StudyName, kinds_beside, known_to_others
from autocompile.search.study.kept import FRESH_S, Begun, KeptStudy, facts_of
from autocompile.search.study.opening import open_storage
from autocompile.search.study.presence import BEAT_S, LIMIT_S, Presence
from autocompile.space.space import Space

# Increased when the format of stored trials changes: studies of another version are left alone.
STUDY_VERSION = 3
# The interval at which a waiting run looks for news from others, in seconds.
_LOOKS_S = 0.5, 1.0
_FINAL, _PLAN = "final ", "plan "


@dataclass(frozen=True)
class Beats:
    """How often a run signals that it lives, and how long it may be silent before it counts as gone, in seconds."""

    every_s: float = BEAT_S
    limit_s: float = LIMIT_S


class Claim(Record, frozen=True):
    """A candidate that a run asked for and has not recorded yet; `number` is that of its trial.

    `is_held`: this run holds it and has to measure it. If another run holds it, it has no trial here.
    """

    number: int
    candidate: Candidate
    plan: Plan
    origin: Origin
    is_held: bool = True


class Archive:
    """One workload's study on one kind of machine, and this run's part in it. Use it as a context manager.

    Any number of runs may work on a study in one storage. Each sees the trials and the claims of the others. The
    attribute `trial` of Optuna's trial holds a trial's record. Its finals are attributes of the study, as Optuna closes
    a trial once it is told. The unfinished trials of a run that is gone are marked as failed, and their candidates are
    open again (`study/presence.py`): Optuna's heartbeat does not cover ask and tell. Candidates that timed out in an
    earlier run, and a baseline that failed there, are tried again.
    """

    def __init__(
        self, about: StudyName, storage: str | None, rules: SearchRules, seed: int, beats: Beats | None = None
    ) -> None:
        beats = beats or Beats()
        self._study = KeptStudy(about.name, open_storage(storage), storage)
        self._study.describe(about.metric, about.attributes)
        self._is_shared = storage is not None
        self._presence = Presence(self._study, beat_s=beats.every_s, limit_s=beats.limit_s, fresh_s=FRESH_S)
        self._reaped: frozenset[str] = frozenset()
        self._of_the_family = known_to_others(about, self._study) if storage else {}
        self._advisor = Advisor(rules, seed)
        self._queue: deque[tuple[Candidate, Origin]] = deque()
        self._asked: dict[int, Begun] = {}
        self._claims: dict[int, Claim] = {}
        self._reap(self._presence.others())
        told = self._study.told()
        self._news_until = set(told)
        self._retried = {number for number, kept in told.items() if _worth_retrying(kept.trial)}

    def __enter__(self) -> Self:
        if self._is_shared:
            self._presence.keep_beating()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(Exception):  # if the storage is gone, others notice the silence
            self._presence.close()
        self._study.close()

    def remembered(self, name: str, find: Callable[[], dict[str, list[Value]]]) -> dict[str, list[Value]]:
        """Return what an earlier run of this study found, so that all runs use the same values; else `find` it.

        One run finds it; others that began in the meantime wait for the result.
        """
        while (values := self._study.attributes().get(name)) is None:
            if self._presence.take(name):
                values = self._study.attributes().get(name)
                if values is None:
                    values = find()
                    self._study.write(name, values)
                self._presence.drop(name)
                break
            self.wait()
        found: dict[str, list[Value]] = values
        return found

    def recalled(self, plan_key: str) -> Trial | None:
        """Return the trial of this plan that another study of the family measured, if there is one."""
        return self._of_the_family.get(plan_key)

    def trials(self) -> list[Trial]:
        """Return all trials of all runs, measured or failed, by number, each program once, with their finals.

        A baseline that failed in another run is left out, so that this run tries it.
        """
        by_plan: dict[str, Trial] = {}
        for number, kept in self._study.told().items():
            is_others = kept.run != self._presence.run
            if number in self._retried or (is_others and _is_failed_baseline(kept.trial)):
                continue
            by_plan.setdefault(kept.trial.plan.key, kept.trial)
        return list(by_plan.values())

    def news(self) -> list[Trial]:
        """Return the trials that other runs recorded since the last call, or since the study was opened."""
        told = self._study.told()
        fresh = [kept.trial for number, kept in told.items() if number not in self._news_until]
        runs = {number: kept.run for number, kept in told.items()}
        self._news_until = set(told)
        return [trial for trial in fresh if runs[trial.number] != self._presence.run]

    def was_told_here(self, number: int) -> bool:
        """Whether this run recorded the trial: measured, on any machine, or recalled."""
        kept = self._study.told().get(number)
        return kept is not None and kept.run == self._presence.run

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The claims of this run that are still out, in the order of asking."""
        return tuple(self._claims.values())

    @property
    def claims_of_others(self) -> tuple[Claim, ...]:
        """The claims of other living runs that are still out."""
        others = self._presence.seen().values()
        held = [(name, about) for record in others for name, about in record.held.items()]
        return tuple(from_json(about, Claim) for name, about in held if name.startswith(_PLAN))

    @property
    def out(self) -> tuple[Claim, ...]:
        """All claims that are still out."""
        return (*self.claims, *self.claims_of_others)

    @property
    def other_runs(self) -> int:
        """How many other runs work on this study."""
        return len(self._presence.others())

    def of_other_kinds(self, about: StudyName) -> list[str]:
        """Return the other kinds of machines, in words, that have a study of this workload in this storage."""
        return kinds_beside(about, self._study)

    def wait(self) -> None:
        """Wait for some time, in which other runs may record something."""
        time.sleep(random.uniform(*_LOOKS_S))  # noqa: S311  no secret
        self._study.look_again()
        self._presence.look_again()

    def enqueue(self, candidate: Candidate, origin: Origin, space: Space) -> None:  # noqa: ARG002  of that space
        """Put a candidate into the queue, which comes before the sampler."""
        self._queue.append((candidate, origin))

    def ask(self, space: Space) -> Claim:
        """Return the next candidate, in its simplest form: an enqueued one, else the sampler's.

        This run holds it until it is recorded or abandoned, unless another run holds it already.
        """
        living = self._presence.seen()
        if self._presence.gone - self._reaped:
            self._reap(living)
        candidate, origin = self._queue.popleft() if self._queue else (self._suggested(space), "search")
        candidate = space.canonical(candidate)
        claim = Claim(-1, candidate, space.plan(candidate), origin)
        if not self._presence.take(f"{_PLAN}{claim.plan.key}", to_json(claim).decode()):
            return replace(claim, is_held=False)
        params = {name: candidate[name] for name in _searched(candidate, space)}
        distributions = {name: distribution(space.open_values[name]) for name in params}
        asked = self._study.begin(self._presence.run, params, distributions, origin)
        self._asked[asked.number] = asked
        self._claims[asked.number] = replace(claim, number=asked.number)
        return self._claims[asked.number]

    def _suggested(self, space: Space) -> Candidate:
        def choose(suggest: Callable[[str, Sequence[Any]], Any]) -> Candidate:
            chosen: dict[str, Value] = {}
            for dimension in space.dimensions:
                values = space.open_values[dimension.name]
                if len(values) > 1 and dimension.applies({**space.defaults(), **chosen}):
                    chosen[dimension.name] = suggest(dimension.name, values)
            return space.candidate(**chosen)

        suggested: Candidate = self._advisor.suggested(self._study.stored(), choose)
        return suggested

    def tell(self, trial: Trial, standing: Standing | None) -> None:
        """Record a trial; `standing` is its place among the others, None if it failed."""
        asked = self._asked[trial.number]
        facts = {**facts_of(trial), "trial": to_json(replace(trial, finals=())).decode()}
        score, excess = (standing.score_s, standing.excess) if standing else (None, {})
        number = trial.number
        if not self._study.end(asked, score, facts, excess):
            # This run was silent for so long that others counted it as gone. Its measurement still counts.
            again = self._study.begin(self._presence.run, asked.params, asked.distributions, trial.origin)
            self._study.end(again, score, facts, excess)
            number = again.number
        for final in trial.finals:  # from another study of the family
            self.add_final(number, final)
        self._forget(trial.number)

    def tell_known(self, number: int, standing: Standing | None) -> None:
        """Close the trial `number` without a measurement: its candidate builds a program that is known.

        `standing` is the known program's; None if it failed, is still out, or cannot be built.
        """
        if number in self._asked:
            score, excess = (standing.score_s, standing.excess) if standing else (None, {})
            self._study.end(self._asked[number], score, {"answered": "from memory"}, excess)
            self._forget(number)

    def abandon(self, number: int) -> None:
        """Close the interrupted trial `number`, so that this or any other run may try the candidate again."""
        if number in self._asked:
            self._study.end(self._asked[number], None, {}, {})
            self._forget(number)

    def _forget(self, number: int) -> None:
        claim = self._claims.pop(number)
        del self._asked[number]
        self._presence.drop(f"{_PLAN}{claim.plan.key}")

    def _reap(self, living: Iterable[str]) -> None:
        self._reaped = self._presence.gone
        self._study.reap((self._presence.run, *living), self._asked)

    def begin_final(self, number: int) -> bool:
        """Whether this run may measure a final of this trial, as no other run measures one now."""
        return self._presence.take(f"{_FINAL}{number}")

    def end_final(self, number: int) -> None:
        """Mark the final as ended, whatever its outcome."""
        self._presence.drop(f"{_FINAL}{number}")

    def add_final(self, number: int, measurement: Measurement) -> None:
        """Record one more process's measurement of a finalist, after those recorded so far."""
        self._study.add_final(number, measurement)

    def disqualify(self, number: int, failure: Failure) -> None:
        """Record that a finalist failed in a new process: it cannot win, whatever its screening showed."""
        self._study.disqualify(number, failure)


def _worth_retrying(trial: Trial) -> bool:
    return isinstance(trial.outcome, Failure) and (trial.outcome.kind == "timeout" or _is_failed_baseline(trial))


def _is_failed_baseline(trial: Trial) -> bool:
    return isinstance(trial.outcome, Failure) and trial.origin == "baseline"


def _searched(candidate: Candidate, space: Space) -> Iterable[str]:
    for dimension in space.dimensions:
        if len(space.open_values[dimension.name]) > 1 and dimension.applies(candidate.values):
            yield dimension.name
