"""What one of Optuna's samplers would try next, given all that the study knows, whoever measured it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from autocompile.search.strategy import SearchRules


class Advisor:
    """Asks the sampler in a study of its own, in memory: nothing is claimed by being suggested."""

    def __init__(self, rules: SearchRules, seed: int) -> None:
        self._sampler = _sampler(rules, seed)

    def suggested(
        self, known: Sequence[FrozenTrial], choose: Callable[[Callable[[str, Sequence[Any]], Any]], Any]
    ) -> Any:
        """What `choose` makes of the values that it asks for, each of a name and its choices."""
        study = optuna.create_study(direction="minimize", sampler=self._sampler)
        study.add_trials([trial for trial in known if trial.state != TrialState.WAITING])
        asked = study.ask()
        return choose(lambda name, values: asked.suggest_categorical(name, list(values)))


def distribution(values: Sequence[Any]) -> BaseDistribution:
    """What Optuna keeps beside a value: what it was chosen from."""
    return optuna.distributions.CategoricalDistribution(list(values))


def _sampler(rules: SearchRules, seed: int) -> BaseSampler:
    makers: dict[str, Any] = {
        "tpe": lambda: TPESampler(
            multivariate=True, group=True, n_startup_trials=rules.random_trials, seed=seed, constant_liar=True
        ),
        "policy": lambda: RandomSampler(seed=seed),  # never asked: the policy says what it wants
        "random": lambda: RandomSampler(seed=seed),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler: BaseSampler = makers[rules.sampler]()
        return sampler
