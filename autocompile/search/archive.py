"""What a search knows: what was measured by whom, what is still out, what an earlier run left, what to try next."""

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

# Raised where what is kept of a trial has another form: studies of another version are left alone.
STUDY_VERSION = 3
# How often a run that waits for others looks what has become of it, in seconds.
_LOOKS_S = 0.5, 1.0
_FINAL, _PLAN = "final ", "plan "


@dataclass(frozen=True)
class Beats:
    """How often a run tells that it lives, and how long it may be silent until it is taken to be gone, in seconds."""

    every_s: float = BEAT_S
    limit_s: float = LIMIT_S


class Claim(Record, frozen=True):
    """A candidate that a run asked for, and that is not told of yet; `number` is its trial's.

    `is_held`: no other run has it, so that it is to be measured. What is not held has no trial.
    """

    number: int
    candidate: Candidate
    plan: Plan
    origin: Origin
    is_held: bool = True


class Archive:
    """One workload's study on one kind of machine, and this run's part in it; to be entered, and left at the end.

    Any number of runs may be at work on a study in one storage. Each sees what the others have told, and what they have
    claimed. A trial's record lies in the attribute `trial` of Optuna's trial, its finals in attributes of the study, as
    Optuna closes a trial once it is told. What a run that is gone left unfinished is failed, and open again
    (`study/presence.py`): Optuna's heartbeat does not cover ask and tell. What an earlier run did not give
    enough time, and a baseline that failed then, is tried again.
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
        with suppress(Exception):  # a storage that does not answer any more: others see that this run is silent
            self._presence.close()
        self._study.close()

    def remembered(self, name: str, find: Callable[[], dict[str, list[Value]]]) -> dict[str, list[Value]]:
        """What an earlier run of this study found, so that this one goes on with the same values; else `find` it.

        One run finds it, and others that began meanwhile wait for that.
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
        """What another study of the family measured of this plan."""
        return self._of_the_family.get(plan_key)

    def trials(self) -> list[Trial]:
        """All that were measured or failed, by any run, by number, each program once, with their finals.

        A baseline that failed for another run is this one's to try.
        """
        by_plan: dict[str, Trial] = {}
        for number, kept in self._study.told().items():
            is_others = kept.run != self._presence.run
            if number in self._retried or (is_others and _is_failed_baseline(kept.trial)):
                continue
            by_plan.setdefault(kept.trial.plan.key, kept.trial)
        return list(by_plan.values())

    def news(self) -> list[Trial]:
        """What other runs have told since this was asked last, or since the study was opened."""
        told = self._study.told()
        fresh = [kept.trial for number, kept in told.items() if number not in self._news_until]
        runs = {number: kept.run for number, kept in told.items()}
        self._news_until = set(told)
        return [trial for trial in fresh if runs[trial.number] != self._presence.run]

    def was_told_here(self, number: int) -> bool:
        """Whether it was this run that told of it: measured, on whatever machine, or recalled."""
        kept = self._study.told().get(number)
        return kept is not None and kept.run == self._presence.run

    @property
    def claims(self) -> tuple[Claim, ...]:
        """What this run asked for and is still out, in the order of asking."""
        return tuple(self._claims.values())

    @property
    def claims_of_others(self) -> tuple[Claim, ...]:
        """What other runs that live have asked for, and is still out."""
        others = self._presence.seen().values()
        held = [(name, about) for record in others for name, about in record.held.items()]
        return tuple(from_json(about, Claim) for name, about in held if name.startswith(_PLAN))

    @property
    def out(self) -> tuple[Claim, ...]:
        """All that is still out."""
        return (*self.claims, *self.claims_of_others)

    @property
    def other_runs(self) -> int:
        """How many other runs are at work on this study."""
        return len(self._presence.others())

    def of_other_kinds(self, about: StudyName) -> list[str]:
        """The kinds of machines, in words, that this workload was tuned on in this storage beside its own."""
        return kinds_beside(about, self._study)

    def wait(self) -> None:
        """Let some time pass, in which other runs may tell something."""
        time.sleep(random.uniform(*_LOOKS_S))  # noqa: S311  no secret
        self._study.look_again()
        self._presence.look_again()

    def enqueue(self, candidate: Candidate, origin: Origin, space: Space) -> None:  # noqa: ARG002  of that space
        """Have this candidate asked for before the sampler is."""
        self._queue.append((candidate, origin))

    def ask(self, space: Space) -> Claim:
        """The next candidate, in its simplest form: an enqueued one, else the sampler's.

        It is claimed until it is told of or abandoned, unless another run has claimed it: then it is not held.
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
        """Keep a trial; `standing` is where it stands among the others, None if it failed."""
        asked = self._asked[trial.number]
        facts = {**facts_of(trial), "trial": to_json(replace(trial, finals=())).decode()}
        score, excess = (standing.score_s, standing.excess) if standing else (None, {})
        number = trial.number
        if not self._study.end(asked, score, facts, excess):
            # This run was silent for so long that others took it to be gone. What it has measured still counts.
            again = self._study.begin(self._presence.run, asked.params, asked.distributions, trial.origin)
            self._study.end(again, score, facts, excess)
            number = again.number
        for final in trial.finals:  # another study's, which goes on here
            self.add_final(number, final)
        self._forget(trial.number)

    def tell_known(self, number: int, standing: Standing | None) -> None:
        """Answer without measuring: the candidate asked for as `number` builds a program that is known.

        `standing` is the known program's; None if it failed, is still out, or cannot be built.
        """
        if number in self._asked:
            score, excess = (standing.score_s, standing.excess) if standing else (None, {})
            self._study.end(self._asked[number], score, {"answered": "from memory"}, excess)
            self._forget(number)

    def abandon(self, number: int) -> None:
        """The trial asked for as `number` was interrupted; this or any other run may try it again."""
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
        """Whether a final of this trial is this run's to measure: no other run is at one of it now."""
        return self._presence.take(f"{_FINAL}{number}")

    def end_final(self, number: int) -> None:
        """The final that was begun has ended, whatever came of it."""
        self._presence.drop(f"{_FINAL}{number}")

    def add_final(self, number: int, measurement: Measurement) -> None:
        """Keep one more process's measurement of a finalist, after those that are there by now."""
        self._study.add_final(number, measurement)

    def disqualify(self, number: int, failure: Failure) -> None:
        """A finalist failed in a fresh process: whatever its screening said, it cannot win."""
        self._study.disqualify(number, failure)


def _worth_retrying(trial: Trial) -> bool:
    return isinstance(trial.outcome, Failure) and (trial.outcome.kind == "timeout" or _is_failed_baseline(trial))


def _is_failed_baseline(trial: Trial) -> bool:
    return isinstance(trial.outcome, Failure) and trial.origin == "baseline"


def _searched(candidate: Candidate, space: Space) -> Iterable[str]:
    for dimension in space.dimensions:
        if len(space.open_values[dimension.name]) > 1 and dimension.applies(candidate.values):
            yield dimension.name
