"""What to try after a failure that another value of one dimension may avoid."""

from __future__ import annotations

from collections.abc import Sequence

from autocompile.core.candidate import Candidate, Value
from autocompile.core.outcome import Failure
from autocompile.core.trial import Trial
from autocompile.runtime.catalogue import kind_of
from autocompile.search.choose.seeds import Seed
from autocompile.space.space import Space


def remedies(space: Space, trials: Sequence[Trial], out: Sequence[Candidate]) -> list[Seed]:
    """Return the failed candidates with the values that may avoid their failures, in the order of their trials.

    Each remedy is returned until a first trial has shown whether it helps. If it does, the search then tries it with
    other values, too.
    """
    seen = [trial.candidate for trial in trials] + list(out)
    seeds = []
    for trial in trials:
        changes = _remedy(trial)
        if changes and _are_open(space, changes) and not any(_has(candidate, changes) for candidate in seen):
            remedied = space.candidate(**{**trial.candidate.values, **changes})
            words = " ".join(f"{name}={value}" for name, value in changes.items())
            seeds.append(Seed(remedied, f"{words} may avoid the failure of {trial.label}"))
    return seeds


def waiting_remedies(space: Space, trials: Sequence[Trial]) -> frozenset[tuple[str, Value]]:
    """Return the remedies that have not yet helped: no candidate with them was measured."""
    measured = (trial.candidate.values.items() for trial in trials if trial.measurement is not None)
    return space.remedies.difference(*measured)


def _remedy(trial: Trial) -> dict[str, Value]:
    outcome = trial.outcome
    return kind_of(trial.plan).remedy(outcome, trial.candidate.values) if isinstance(outcome, Failure) else {}


def _are_open(space: Space, changes: dict[str, Value]) -> bool:
    return all(value in space.open_values[name] for name, value in changes.items())


def _has(candidate: Candidate, changes: dict[str, Value]) -> bool:
    return all(candidate[name] == value for name, value in changes.items())
