"""One study in a storage, as a search reads and writes it; a storage that does not answer is waited for."""

from __future__ import annotations

import contextlib
import secrets
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import optuna
from msgspec.structs import replace
from optuna.distributions import BaseDistribution
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import DataError, IntegrityError, ProgrammingError

from autocompile.core.errors import RunnerError
from autocompile.core.outcome import Failure, Measurement
from autocompile.core.serde import from_json, to_json
from autocompile.core.trial import Trial
from autocompile.search.study.opening import close_storage, open_study, shown

# Attributes of a study: of a trial's finals, each with its position among them, and of what a final found wrong.
_FINAL, _DISQUALIFIED = "final:{number}:", "disqualified:{number}"
# The attribute of an Optuna trial that names the run which asked for it.
_RUN = "run"
# For how long a server that does not answer is waited for, and how often it is asked.
_PATIENCE_S, _PAUSE_S = 300.0, 0.5
# For how long what was read of others is taken to be the present, in seconds.
FRESH_S = 1.0

T = TypeVar("T")


@dataclass(frozen=True)
class Kept:
    """A trial that was told of, and the run that told it."""

    run: str
    trial: Trial


@dataclass(frozen=True)
class Begun:
    """A trial of this run that is not closed: its number, and what the storage knows it by."""

    number: int
    identity: int
    params: Mapping[str, Any]
    distributions: Mapping[str, BaseDistribution]


class KeptStudy:
    """The study `name` in `storage`, which lies at `url`.

    Raises RunnerError where the storage has not answered for five minutes.
    """

    def __init__(self, name: str, storage: BaseStorage, url: str | None) -> None:
        self.name, self._storage, self._url = name, storage, url
        self._study = open_study(name, storage, url)
        self._id = storage.get_study_id_from_name(name)
        self._parsed: dict[str, Any] = {}
        self._seen: list[FrozenTrial] = []
        self._told: dict[int, Kept] | None = None
        self._told_at = 0.0

    def close(self) -> None:
        """End the connections to its storage."""
        close_storage(self._storage)

    def describe(self, metric: str, attributes: Mapping[str, str]) -> None:
        """For whoever opens the storage with Optuna's own tools."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            self._patiently(partial(self._study.set_metric_names, [metric]))
        known = self.attributes()
        for name, value in attributes.items():
            if known.get(name) != value:
                self.write(name, value)

    def attributes(self, *, patient: bool = True) -> dict[str, Any]:
        """All attributes of the study, as they are now."""
        return self._answered(partial(self._storage.get_study_user_attrs, self._id), patient=patient)

    def write(self, name: str, value: Any, *, patient: bool = True) -> None:
        """Set an attribute of the study."""
        self._answered(partial(self._storage.set_study_user_attr, self._id, name, value), patient=patient)

    def others(self) -> list[str]:
        """The names of all other studies in the storage."""
        names = self._patiently(partial(optuna.get_all_study_names, self._storage))
        return [name for name in names if name != self.name]

    def another(self, name: str) -> KeptStudy:
        """Another study in the same storage."""
        return KeptStudy(name, self._storage, self._url)

    def begin(
        self, run: str, params: Mapping[str, Any], distributions: Mapping[str, BaseDistribution], origin: str
    ) -> Begun:
        """A running trial, written at once with the run that it belongs to. What was told is read anew after it."""
        template = optuna.trial.create_trial(
            state=TrialState.RUNNING,
            params=dict(params),
            distributions=dict(distributions),
            user_attrs={_RUN: run, "origin": origin},
        )
        identity = self._patiently(partial(self._storage.create_new_trial, self._id, template_trial=template))
        self._told = self._read_told()
        return Begun(self._number(run), identity, params, distributions)

    def _number(self, run: str) -> int:
        """That of the trial which this run began last, as far as what was read goes."""
        return max(one.number for one in self._seen if one.user_attrs.get(_RUN) == run)

    def end(self, begun: Begun, score: float | None, facts: Mapping[str, Any], excess: Mapping[str, float]) -> bool:
        """Write what came of a trial; `score` is None if it failed. False if another run has closed it meanwhile."""
        try:
            for name, value in facts.items():
                self._patiently(partial(self._storage.set_trial_user_attr, begun.identity, name, value))
            if excess and score is not None:
                self._constrain(begun.identity, excess)
            self._close(begun.identity, score)
        except optuna.exceptions.UpdateFinishedTrialError:
            return False
        finally:
            if facts:
                self.look_again()
        return True

    def _constrain(self, identity: int, excess: Mapping[str, float]) -> None:
        asked = self._patiently(partial(optuna.trial.Trial, self._study, identity))
        for name, value in excess.items():
            self._patiently(partial(asked.set_constraint, name, value))

    def _close(self, identity: int, score: float | None) -> None:
        state, values = (TrialState.FAIL, None) if score is None else (TrialState.COMPLETE, [score])
        self._patiently(partial(self._storage.set_trial_state_values, identity, state, values))

    def _identity(self, number: int) -> int:
        return self._patiently(partial(self._storage.get_trial_id_from_study_id_trial_number, self._id, number))

    def reap(self, living: Iterable[str], own: Iterable[int]) -> None:
        """Fail what runs that are gone left running: all that belongs to none of the living, and is none of `own`."""
        runs, numbers = set(living), set(own)
        for stored in self.stored((TrialState.RUNNING,)):
            if stored.number not in numbers and stored.user_attrs.get(_RUN, "") not in runs:
                with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):
                    self._close(self._identity(stored.number), None)

    def stored(self, states: Sequence[TrialState] | None = None) -> list[FrozenTrial]:
        """Optuna's trials, by number."""
        return self._patiently(partial(self._study.get_trials, deepcopy=False, states=states))

    def told(self) -> dict[int, Kept]:
        """All trials that were told of, by number, with their finals, and what a final found wrong.

        One decision asks for them many times: they are read anew after what this run has told or begun, and otherwise
        when a moment has passed.
        """
        if self._told is None or time.monotonic() - self._told_at > FRESH_S:
            self._told = self._read_told()
        return self._told

    def look_again(self) -> None:
        """What was read is of the past, however short ago that was."""
        self._told = None

    def _read_told(self) -> dict[int, Kept]:
        self._told_at = time.monotonic()
        stored, attributes = self.stored(), self.attributes()
        self._seen = stored
        finals: dict[int, list[Measurement]] = {}
        for name in sorted(name for name in attributes if name.startswith("final:")):
            finals.setdefault(int(name.split(":")[1]), []).append(self._read(name, attributes[name], Measurement))
        told = {}
        for one in stored:
            if (text := one.user_attrs.get("trial")) is None:
                continue
            trial = self._read(f"trial:{one.number}", text, Trial)
            fault = attributes.get(_DISQUALIFIED.format(number=one.number))
            own = tuple(finals.get(one.number, ()))
            if own or fault or trial.number != one.number:
                outcome = self._read(f"fault:{one.number}", fault, Failure) if fault else trial.outcome
                trial = replace(trial, number=one.number, finals=own, outcome=outcome)
            told[one.number] = Kept(one.user_attrs.get(_RUN, ""), trial)
        return told

    def _read(self, name: str, text: str, kind: type[T]) -> T:
        """A record that was written once, and never changes."""
        if name not in self._parsed:
            self._parsed[name] = from_json(text, kind)
        record: T = self._parsed[name]
        return record

    def add_final(self, number: int, measurement: Measurement) -> None:
        """Keep one more process's measurement of a finalist, after those that are there by now."""
        prefix, text = _FINAL.format(number=number), to_json(measurement).decode()
        position = sum(name.startswith(prefix) for name in self.attributes())
        # Two that are added at the same time take the same position, and are told apart by chance.
        self.write(f"{prefix}{position:04d}:{secrets.token_hex(8)}", text)
        self.look_again()

    def disqualify(self, number: int, failure: Failure) -> None:
        """A finalist failed in a fresh process."""
        self.write(_DISQUALIFIED.format(number=number), to_json(failure).decode())
        self.look_again()

    def _answered(self, call: Callable[[], T], *, patient: bool) -> T:
        if patient:
            return self._patiently(call)
        try:
            return call()
        except StorageInternalError:
            self._storage.remove_session()
            raise

    def _patiently(self, call: Callable[[], T]) -> T:
        """What the storage answers; where the database does not, it is asked again, until it does."""
        began = time.monotonic()
        while True:
            try:
                return call()
            except StorageInternalError as fault:
                if isinstance(fault.__cause__, DataError | IntegrityError | ProgrammingError):
                    raise
                if time.monotonic() - began > _PATIENCE_S:
                    where = shown(self._url or "")
                    raise RunnerError(
                        f"the storage {where} has not answered for {_PATIENCE_S / 60:.0f} minutes; "
                        "the same command goes on when it is back"
                    ) from None
            self._storage.remove_session()
            time.sleep(_PAUSE_S)


def facts_of(trial: Trial) -> dict[str, Any]:
    """What Optuna's own tools show of a trial."""
    facts: dict[str, Any] = {"label": trial.label, "plan": trial.plan.key}
    measurement = trial.measurement
    if measurement is not None:
        facts["latency_ms"] = measurement.latency.p50_ms
        facts["speedup"] = 1 / measurement.ratio.value
        facts["startup_s"] = measurement.startup.total_s
        facts["compile_s"] = measurement.startup.compile_s
        facts["peak_memory_mib"] = measurement.peak_memory_bytes / 2**20
        facts["error"] = measurement.accuracy.error
    elif isinstance(trial.outcome, Failure):
        facts["failure"] = f"{trial.outcome.kind} in phase {trial.outcome.stage}"
    return facts
