"""One study in a storage, as a search reads and writes it; calls wait for a storage that does not answer."""

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
from autocompile.interrupts import uninterrupted
from autocompile.search.study.opening import close_storage, open_study, shown

# Attributes of a study: each final of a trial, with its position, and a failure that a final found.
_FINAL, _DISQUALIFIED = "final:{number}:", "disqualified:{number}"
# The attribute of an Optuna trial that names the run that asked for it.
_RUN = "run"
# How long to wait for a server that does not answer, and how often to ask.
_PATIENCE_S, _PAUSE_S = 300.0, 0.5
# For how long data read from the storage counts as current, in seconds.
FRESH_S = 1.0

T = TypeVar("T")


@dataclass(frozen=True)
class Kept:
    """A recorded trial, and the run that recorded it."""

    run: str
    trial: Trial


@dataclass(frozen=True)
class Begun:
    """A trial of this run that is not closed: its number, and its id in the storage."""

    number: int
    identity: int
    params: Mapping[str, Any]
    distributions: Mapping[str, BaseDistribution]


class KeptStudy:
    """The study `name` in `storage`, which `url` points to.

    Raises RunnerError if the storage has not answered for five minutes.
    """

    def __init__(self, name: str, storage: BaseStorage, url: str | None) -> None:
        self.name, self._storage, self._url = name, storage, url
        self._study = open_study(name, storage, url)
        with uninterrupted():
            self._id = storage.get_study_id_from_name(name)
        self._parsed: dict[str, Any] = {}
        self._seen: list[FrozenTrial] = []
        self._told: dict[int, Kept] | None = None
        self._told_at = 0.0

    def close(self) -> None:
        """Close the connections to the storage."""
        close_storage(self._storage)

    def describe(self, metric: str, attributes: Mapping[str, str]) -> None:
        """Describe the study for users of Optuna's own tools."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            self._patiently(partial(self._study.set_metric_names, [metric]))
        known = self.attributes()
        for name, value in attributes.items():
            if known.get(name) != value:
                self.write(name, value)

    def attributes(self, *, patient: bool = True) -> dict[str, Any]:
        """Return all current attributes of the study."""
        return self._answered(partial(self._storage.get_study_user_attrs, self._id), patient=patient)

    def write(self, name: str, value: Any, *, patient: bool = True) -> None:
        """Set an attribute of the study."""
        self._answered(partial(self._storage.set_study_user_attr, self._id, name, value), patient=patient)

    def others(self) -> list[str]:
        """Return the names of all other studies in the storage."""
        names = self._patiently(partial(optuna.get_all_study_names, self._storage))
        return [name for name in names if name != self.name]

    def another(self, name: str) -> KeptStudy:
        """Return another study in the same storage."""
        return KeptStudy(name, self._storage, self._url)

    def begin(
        self, run: str, params: Mapping[str, Any], distributions: Mapping[str, BaseDistribution], origin: str
    ) -> Begun:
        """Create a running trial that names its run from the start. Afterwards, the recorded trials are read again."""
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
        """Return the number of the trial that this run began last, according to the data read last."""
        return max(one.number for one in self._seen if one.user_attrs.get(_RUN) == run)

    def end(self, begun: Begun, score: float | None, facts: Mapping[str, Any], excess: Mapping[str, float]) -> bool:
        """Record the outcome of a trial; `score` is None if it failed. False if another run has already closed it."""
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
        """Mark as failed the running trials that belong to no run in `living` and whose numbers are not in `own`."""
        runs, numbers = set(living), set(own)
        for stored in self.stored((TrialState.RUNNING,)):
            if stored.number not in numbers and stored.user_attrs.get(_RUN, "") not in runs:
                with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):
                    self._close(self._identity(stored.number), None)

    def stored(self, states: Sequence[TrialState] | None = None) -> list[FrozenTrial]:
        """Return Optuna's trials, by number."""
        return self._patiently(partial(self._study.get_trials, deepcopy=False, states=states))

    def told(self) -> dict[int, Kept]:
        """Return all recorded trials, by number, with their finals, and with failures that a final found.

        As one decision asks for them many times, they are cached. They are read again after this run has recorded or
        begun something, and after a moment.
        """
        if self._told is None or time.monotonic() - self._told_at > FRESH_S:
            self._told = self._read_told()
        return self._told

    def look_again(self) -> None:
        """Read everything again at the next call."""
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
        """Parse a record, once: records never change."""
        if name not in self._parsed:
            self._parsed[name] = from_json(text, kind)
        record: T = self._parsed[name]
        return record

    def add_final(self, number: int, measurement: Measurement) -> None:
        """Record one more process's measurement of a finalist, after those recorded so far."""
        prefix, text = _FINAL.format(number=number), to_json(measurement).decode()
        position = sum(name.startswith(prefix) for name in self.attributes())
        # Two finals that are added at the same time get the same position; a random suffix distinguishes them.
        self.write(f"{prefix}{position:04d}:{secrets.token_hex(8)}", text)
        self.look_again()

    def disqualify(self, number: int, failure: Failure) -> None:
        """Record that a finalist failed in a new process."""
        self.write(_DISQUALIFIED.format(number=number), to_json(failure).decode())
        self.look_again()

    def _answered(self, call: Callable[[], T], *, patient: bool) -> T:
        if patient:
            return self._patiently(call)
        try:
            with uninterrupted():
                return call()
        except StorageInternalError:
            self._end_session()
            raise

    def _patiently(self, call: Callable[[], T]) -> T:
        """Return what the storage answers; if the database does not answer, ask again until it does."""
        began = time.monotonic()
        while True:
            try:
                with uninterrupted():
                    return call()
            except StorageInternalError as fault:
                if isinstance(fault.__cause__, DataError | IntegrityError | ProgrammingError):
                    raise
                if time.monotonic() - began > _PATIENCE_S:
                    where = shown(self._url or "")
                    raise RunnerError(
                        f"the storage {where} has not answered for {_PATIENCE_S / 60:.0f} minutes; "
                        "run the same command again when it is back, to continue"
                    ) from None
            self._end_session()
            time.sleep(_PAUSE_S)

    def _end_session(self) -> None:
        with uninterrupted():
            self._storage.remove_session()


def facts_of(trial: Trial) -> dict[str, Any]:
    """Return the facts of a trial that Optuna's own tools show."""
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
