"""Suggestions of Optuna's samplers, given all trials that the study knows, from any run."""

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
    """Asks the sampler in a separate study in memory: a suggestion claims nothing."""

    def __init__(self, rules: SearchRules, seed: int) -> None:
        self._sampler = _sampler(rules, seed)

    def suggested(
        self, known: Sequence[FrozenTrial], choose: Callable[[Callable[[str, Sequence[Any]], Any]], Any]
    ) -> Any:
        """Return the result of `choose`, which asks for values by a name and a list of choices."""
        study = optuna.create_study(direction="minimize", sampler=self._sampler)
        study.add_trials([trial for trial in known if trial.state != TrialState.WAITING])
        asked = study.ask()
        return choose(lambda name, values: asked.suggest_categorical(name, list(values)))


def distribution(values: Sequence[Any]) -> BaseDistribution:
    """Return the distribution that Optuna keeps with a value: the choices that there were."""
    return optuna.distributions.CategoricalDistribution(list(values))


def _sampler(rules: SearchRules, seed: int) -> BaseSampler:
    makers: dict[str, Any] = {
        "tpe": lambda: TPESampler(
            multivariate=True, group=True, n_startup_trials=rules.random_trials, seed=seed, constant_liar=True
        ),
        "policy": lambda: RandomSampler(seed=seed),  # not used: the policy chooses
        "random": lambda: RandomSampler(seed=seed),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler: BaseSampler = makers[rules.sampler]()
        return sampler
