"""What is known of the training of one module."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from autocompile.core.words import Words, words_of
from autocompile.workload.training.recipe import Recipe, calls_its_closure
from autocompile.workload.watching.learning.tape import Constants, NotRecorded, Round


@dataclass(frozen=True)
class Start:
    """A module and its optimizer before a step. `after` holds its parameters and buffers after the step, by name.

    `gradients` are those of the parameters after a call of a closure, which changes no parameter; otherwise it is
    empty.
    """

    module: nn.Module
    recipe: Recipe
    after: dict[str, torch.Tensor]
    gradients: dict[str, torch.Tensor]


@dataclass
class Lesson:
    """What is known of the training of one module.

    Its `optimizer` did `steps` steps. `recorded` holds the rounds of some of them. The step with the index `first` in
    `recorded` begins at `start`, and `constants` have their values of that step. `clip_norms` counts the norms to which
    gradients were clipped, None if they were not. `seconds` is the time of the optimizer and the backward passes.
    `problem` tells why the steps cannot be repeated, or is "". `is_scaled` tells whether losses were scaled. Of the
    step under way, it holds the `rounds`, whether the module `is_called`, and what is `pending` to become `start`.

    If the optimizer calls its closure itself, each closure call counts as a step.
    """

    module: nn.Module
    optimizer: Optimizer | None = None
    steps: int = 0
    seconds: float = 0.0
    recorded: list[tuple[Round, ...]] = field(default_factory=list)
    clip_norms: Counter[float | None] = field(default_factory=Counter)
    start: Start | None = None
    first: int = 0
    problem: str = ""
    is_scaled: bool = False
    rounds: list[Round] = field(default_factory=list)
    constants: Constants = field(default_factory=Constants)
    pending: tuple[nn.Module, Recipe] | None = None
    is_called: bool = False

    @property
    def words(self) -> Words:
        """The words for its steps."""
        by_closure = self.optimizer is not None and calls_its_closure(type(self.optimizer))
        return words_of("closure" if by_closure else "training")

    def forget_step(self) -> None:
        """Discard the step under way."""
        self.rounds, self.pending, self.is_called = [], None, False

    def take(self, made: Round) -> None:
        """Keep what led to a loss. Raises NotRecorded if the same call of the module also led to another loss."""
        if any(made.calls & before.calls for before in self.rounds):
            raise NotRecorded("several losses come from one call of the model; add them up, and call backward() once")
        self.rounds.append(made)


def gradients_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return copies of the gradients that exist, by parameter name."""
    return {name: one.grad.detach().clone() for name, one in module.named_parameters() if one.grad is not None}
