"""One unit of work: what is timed, compared and profiled."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import nn

from autocompile.core.step_profile import Phase
from autocompile.workload.figures import figures_of
from autocompile.workload.observation import Observation, Sequel, observed
from autocompile.workload.samples import Sample, clone
from autocompile.workload.state import Snapshot, State


class Step(ABC):
    """A call of a model, a training step, a script: work on the inputs of a sample.

    `threads` is the number of CPU threads that its operators should have, 0 for torch's own; it is a setting of the
    process, so whoever runs it decides when to apply it. `module` is the module beneath, or None. With `copies_inputs`
    it works on copies of its inputs, as it writes into them, so that every run is like the first. `device_type`: where
    its operators run, `cpu` or `cuda`.
    """

    threads: int = 0
    device_type: str = "cpu"
    module: nn.Module | None = None
    copies_inputs: bool = False
    _hears: Callable[[Phase], None] | None = None

    @abstractmethod
    def work(self, sample: Sample) -> Any:
        """Do it once, on these very inputs, in the gradient mode that it is made for; what comes of it, in any form."""

    @abstractmethod
    def twin(self) -> Self:
        """The same work on state of its own: what either changes, the other does not have.

        What it only reads is shared; where it changes nothing, it is its own twin.
        """

    @abstractmethod
    def in_float64(self) -> Step:
        """The same work in double precision, on copies of all that it holds."""

    @property
    def state(self) -> State:
        """What it changes: by default the module's buffers."""
        return State(self.module)

    def run(self, sample: Sample) -> Any:
        """Do it once; what comes of it."""
        return self.work(clone(sample) if self.copies_inputs else sample)

    def on_copies(self) -> Self:
        """The same, which copies its inputs before it works on them."""
        other = copy.copy(self)
        other.copies_inputs = True
        return other

    @contextmanager
    def telling(self, hears: Callable[[Phase], None]) -> Iterator[None]:
        """Have `hears` told of each phase as it begins, where the work has phases; the last ends with the work."""
        self._hears = hears
        try:
            yield
        finally:
            self._hears = None

    def begin(self, phase: Phase) -> None:
        """For the work itself: from here on it is in this phase."""
        if self._hears is not None:
            self._hears(phase)

    def snapshot(self) -> Snapshot:
        """All that it changes, torch's random state included, as it is now."""
        return self.state.snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        """Put all of it back as it was."""
        snapshot.restore()

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """Put back afterwards, also after an exception, what was changed meanwhile."""
        before = self.snapshot()
        try:
            yield
        finally:
            self.restore(before)

    def sequel(self, seed: int) -> Sequel | None:  # noqa: ARG002  by default nothing has to follow from anything
        """What must follow from a part of what it is observed to do from this seed on, as it is now.

        That part is then judged by what it followed from, and not by what it should have followed from.
        """
        return None

    def observe(self, sample: Sample, seed: int, *, draws: int | None = None) -> Observation:
        """Do it once, and tell all that it did.

        It runs on a copy of the sample, from one random state, and leaves no trace, so that every run can be compared
        with every other. `draws`: the seed of the random numbers that it draws, where that is another one.
        """
        own = clone(sample)
        with self.preserved():
            torch.manual_seed(seed if draws is None else draws)
            return observed(self.work(own), own, self.state)

    def drawn(self, sample: Sample, seed: int, count: int) -> dict[str, torch.Tensor]:
        """Do it so many times, and tell by which figures the random numbers that it draws show: a row for each time.

        Every time it begins with the same state, and goes on in the random numbers. It leaves no trace.
        """
        with self.preserved():
            torch.manual_seed(seed)
            before = self.snapshot()
            times = []
            for _ in range(count):
                times.append(self.figures(clone(sample)))
                before.restore_but_random()
        return {name: torch.stack([figures[name] for figures in times]) for name in times[0]}

    def figures(self, sample: Sample) -> dict[str, torch.Tensor]:
        """Do it once, on these very inputs; vectors by which its random numbers show: by default all it did."""
        return figures_of(observed(self.work(sample), sample, self.state))
