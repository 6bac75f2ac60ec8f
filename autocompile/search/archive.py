"""The study in Optuna's storage: what a killed run left, what was measured, what to try next."""

from __future__ import annotations

import os
import platform
import secrets
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import optuna
import psutil
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import TrialState
from sqlalchemy.engine import URL

from autocompile.core.candidate import Candidate, Value
from autocompile.core.errors import InvalidValue
from autocompile.core.outcome import Failure, Measurement
from autocompile.core.plan import Plan
from autocompile.core.serde import from_json, to_json
from autocompile.core.trial import Origin, Trial
from autocompile.search.run import Standing
from autocompile.search.strategy import SearchRules
from autocompile.space.space import Space

optuna.logging.set_verbosity(optuna.logging.WARNING)

# Raised where what is kept of a trial has another form: studies of another version are left alone.
STUDY_VERSION = 3
# Attributes of a study: of a trial's finals, each with its position among them, and of what a final found wrong.
_FINAL, _DISQUALIFIED = "final:{number}:", "disqualified:{number}"


@dataclass(frozen=True)
class StudyName:
    """A study's `name`, what its values are (`metric`), and what else is worth knowing of it (`attributes`).

    Studies of one `family` measured the same, for other goals or over other values: what one knows, all know.
    """

    family: str
    search: str
    metric: str
    attributes: dict[str, str]

    @property
    def name(self) -> str:
        """Unique for what is searched, and what for."""
        return f"{self.family} {self.search}"


@dataclass(frozen=True)
class Claim:
    """A candidate that this run asked for, and that is not told of yet; `number` is its trial's."""

    number: int
    candidate: Candidate
    plan: Plan
    origin: Origin


class Archive:
    """One workload's study on one kind of machine.

    A trial's record lies in the attribute `trial` of Optuna's trial, its finals in attributes of the
    study, as Optuna closes a trial once it is told; each final has an attribute of its own, so that none
    is lost where several are added at a time. Trials that a killed run left unfinished are failed
    at the opening: Optuna's heartbeat does not cover ask and tell. What an earlier run did not give
    enough time, and a baseline that failed then, is tried again.
    """

    def __init__(self, about: StudyName, storage: str | None, rules: SearchRules, seed: int) -> None:
        self._study = _open(about.name, storage, rules, seed)
        self._describe(about)
        self._of_the_family = _known_to_others(about, storage) if storage else {}
        self._asked: dict[int, optuna.Trial] = {}
        self._claims: dict[int, Claim] = {}
        for stale in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if not _owner_lives(stale.user_attrs.get("owner", "")):
                self._study.tell(stale.number, state=TrialState.FAIL)
        self._retried = {
            number
            for number, trial in _stored(self._study)
            if isinstance(trial.outcome, Failure) and _worth_retrying(trial)
        }

    def _describe(self, about: StudyName) -> None:
        """For whoever opens the storage with Optuna's own tools."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            self._study.set_metric_names([about.metric])
        for name, value in about.attributes.items():
            self._study.set_user_attr(name, value)

    def remembered(self, name: str, find: Callable[[], dict[str, list[Value]]]) -> dict[str, list[Value]]:
        """What an earlier run of this study found, so that this one goes on with the same values; else `find` it."""
        values: dict[str, list[Value]] | None = self._study.user_attrs.get(name)
        if values is None:
            values = find()
            self._study.set_user_attr(name, values)
        return values

    def recalled(self, plan_key: str) -> Trial | None:
        """What another study of the family measured of this plan."""
        return self._of_the_family.get(plan_key)

    def trials(self) -> list[Trial]:
        """All that were measured or failed, by number, each program once, with their finals."""
        by_plan: dict[str, Trial] = {}
        for number, trial in _stored(self._study):
            if number not in self._retried:
                by_plan.setdefault(trial.plan.key, trial)
        return list(by_plan.values())

    @property
    def claims(self) -> tuple[Claim, ...]:
        """What was asked for and is still out, in the order of asking."""
        return tuple(self._claims.values())

    def enqueue(self, candidate: Candidate, origin: Origin, space: Space) -> None:
        """Have this candidate asked for before the sampler is."""
        values = {name: candidate[name] for name in _searched(candidate, space)}
        self._study.enqueue_trial(values, user_attrs={"origin": origin})

    def ask(self, space: Space) -> Claim:
        """The next candidate, in its simplest form: an enqueued one, else the sampler's.

        It is claimed until it is told of or abandoned.
        """
        asked = self._study.ask()
        asked.set_user_attr("owner", f"{platform.node()} {os.getpid()}")
        chosen: dict[str, Value] = {}
        for dimension in space.dimensions:
            values = space.open_values[dimension.name]
            if len(values) > 1 and dimension.applies({**space.defaults(), **chosen}):
                value: Any = asked.suggest_categorical(dimension.name, list(values))
                chosen[dimension.name] = value
        candidate = space.canonical(space.candidate(**chosen))
        origin: Origin = asked.user_attrs.get("origin", "search")
        self._asked[asked.number] = asked
        self._claims[asked.number] = Claim(asked.number, candidate, space.plan(candidate), origin)
        return self._claims[asked.number]

    def tell(self, trial: Trial, standing: Standing | None) -> None:
        """Keep a trial; `standing` is where it stands among the others, None if it failed."""
        asked = self._asked[trial.number]
        asked.set_user_attr("label", trial.label)
        asked.set_user_attr("plan", trial.plan.key)
        measurement = trial.measurement
        if measurement is not None:
            asked.set_user_attr("latency_ms", measurement.latency.p50_ms)
            asked.set_user_attr("speedup", 1 / measurement.ratio.value)
            asked.set_user_attr("startup_s", measurement.startup.total_s)
            asked.set_user_attr("compile_s", measurement.startup.compile_s)
            asked.set_user_attr("peak_memory_mib", measurement.peak_memory_bytes / 2**20)
            asked.set_user_attr("error", measurement.accuracy.error)
        elif isinstance(trial.outcome, Failure):
            asked.set_user_attr("failure", f"{trial.outcome.kind} in phase {trial.outcome.stage}")
        for final in trial.finals:  # another study's, which goes on here
            self.add_final(trial.number, final)
        asked.set_user_attr("trial", to_json(msgspec.structs.replace(trial, finals=())).decode())
        self._finish(asked, standing)

    def tell_known(self, number: int, standing: Standing | None) -> None:
        """Answer without measuring: the candidate asked for as `number` builds a program that is known.

        `standing` is the known program's; None if it failed, is still out, or cannot be built.
        """
        asked = self._asked[number]
        asked.set_user_attr("answered", "from memory")
        self._finish(asked, standing)

    def abandon(self, number: int) -> None:
        """The trial asked for as `number` was interrupted; a later run may try it again."""
        if number in self._asked:
            self._finish(self._asked[number], None)

    def add_final(self, number: int, measurement: Measurement) -> None:
        """Keep one more process's measurement of a finalist, after those that are there by now."""
        prefix = _FINAL.format(number=number)
        position = sum(name.startswith(prefix) for name in self._study.user_attrs)
        # Two that are added at the same time take the same position, and are told apart by chance.
        name = f"{prefix}{position:04d}:{secrets.token_hex(8)}"
        self._study.set_user_attr(name, to_json(measurement).decode())

    def disqualify(self, number: int, failure: Failure) -> None:
        """A finalist failed in a fresh process: whatever its screening said, it cannot win."""
        self._study.set_user_attr(_DISQUALIFIED.format(number=number), to_json(failure).decode())

    def _finish(self, asked: optuna.Trial, standing: Standing | None) -> None:
        del self._asked[asked.number], self._claims[asked.number]
        if standing is None:
            self._study.tell(asked, state=TrialState.FAIL)
            return
        for name, excess in standing.excess.items():
            asked.set_constraint(name, excess)
        self._study.tell(asked, standing.score_s)


def _stored(study: optuna.Study) -> Iterator[tuple[int, Trial]]:
    """All trials that were told, with their finals, and what a final found wrong."""
    attributes = study.user_attrs
    names = sorted(attributes)
    for stored in study.get_trials(deepcopy=False):
        text = stored.user_attrs.get("trial")
        if text is not None:
            trial = from_json(text, Trial)
            prefix = _FINAL.format(number=stored.number)
            finals = tuple(from_json(attributes[name], Measurement) for name in names if name.startswith(prefix))
            fault = attributes.get(_DISQUALIFIED.format(number=stored.number))
            outcome = from_json(fault, Failure) if fault else trial.outcome
            yield stored.number, msgspec.structs.replace(trial, finals=finals, outcome=outcome)


def _known_to_others(about: StudyName, storage: str) -> dict[str, Trial]:
    """What the family's other studies measured to the end; what was ended depended on their goal."""
    names = [name for name in optuna.get_all_study_names(storage) if name.startswith(f"{about.family} ")]
    by_plan: dict[str, Trial] = {}
    for name in names:
        if name != about.name:
            for _number, trial in _stored(optuna.load_study(study_name=name, storage=storage)):
                if not _depended_on_its_goal(trial):
                    by_plan.setdefault(trial.plan.key, trial)
    return by_plan


def _depended_on_its_goal(trial: Trial) -> bool:
    if isinstance(trial.outcome, Failure):
        return trial.outcome.kind == "timeout"
    return trial.outcome.decided


def _owner_lives(owner: str) -> bool:
    """Whether the run that asked for a trial may still be at it; of another host nothing is known."""
    host, _, pid = owner.rpartition(" ")
    if not host:
        return False
    return host != platform.node() or (int(pid) != os.getpid() and psutil.pid_exists(int(pid)))


def sqlite_url(path: Path) -> str:
    """The storage URL of a file, whatever characters its path has."""
    return URL.create("sqlite", database=str(path)).render_as_string()


def _worth_retrying(trial: Trial) -> bool:
    if not isinstance(trial.outcome, Failure):
        return False
    return trial.outcome.kind == "timeout" or trial.origin == "baseline"


def _searched(candidate: Candidate, space: Space) -> Iterable[str]:
    for dimension in space.dimensions:
        if len(space.open_values[dimension.name]) > 1 and dimension.applies(candidate.values):
            yield dimension.name


def _open(name: str, storage: str | None, rules: SearchRules, seed: int) -> optuna.Study:
    try:
        study = optuna.create_study(
            study_name=name,
            storage=storage,
            sampler=_sampler(rules, seed),
            direction="minimize",
            load_if_exists=True,
        )
    except Exception as fault:  # whatever the database's driver raises
        raise InvalidValue(
            f"cannot open the study there: {str(fault).splitlines()[0]}",
            where=f"storage {storage}",
            remedy="if it is a damaged file, delete it; else give an Optuna storage URL",
        ) from fault
    return study


def _sampler(rules: SearchRules, seed: int) -> BaseSampler:
    makers: dict[str, Any] = {
        "tpe": lambda: TPESampler(
            multivariate=True, group=True, n_startup_trials=rules.random_trials, seed=seed, constant_liar=True
        ),
        "policy": lambda: RandomSampler(seed=seed),  # never asked: the policy enqueues what it wants
        "random": lambda: RandomSampler(seed=seed),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler: BaseSampler = makers[rules.sampler]()
        return sampler
