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
    """A call of a model, a training step or a script: work on the inputs of a sample.

    `threads` is the number of CPU threads for its operators, 0 for torch's default. It is a setting of the process, so
    the caller decides when to apply it. `module` is the module that does the computation, or None. With `copies_inputs`
    it works on copies of its inputs, because it writes into them, so that every run is like the first. `device_type`,
    `cpu` or `cuda`, is where its operators run.
    """

    threads: int = 0
    device_type: str = "cpu"
    module: nn.Module | None = None
    copies_inputs: bool = False
    _hears: Callable[[Phase], None] | None = None

    @abstractmethod
    def work(self, sample: Sample) -> Any:
        """Do the work once, on these very inputs, and return its result in any form.

        It runs in the gradient mode that it is made for.
        """

    @abstractmethod
    def twin(self) -> Self:
        """Return the same work on separate state: changes by one do not affect the other.

        State that is only read is shared. A step that changes nothing may return itself.
        """

    @abstractmethod
    def in_float64(self) -> Step:
        """Return the same work in double precision, on copies of everything it holds."""

    @property
    def state(self) -> State:
        """What it changes: by default the module's buffers."""
        return State(self.module)

    def run(self, sample: Sample) -> Any:
        """Do the work once and return its result."""
        return self.work(clone(sample) if self.copies_inputs else sample)

    def on_copies(self) -> Self:
        """Return the same work, which copies its inputs before each run."""
        other = copy.copy(self)
        other.copies_inputs = True
        return other

    @contextmanager
    def telling(self, hears: Callable[[Phase], None]) -> Iterator[None]:
        """Call `hears` at the beginning of each phase, if the work has phases. The last phase ends with the work."""
        self._hears = hears
        try:
            yield
        finally:
            self._hears = None

    def begin(self, phase: Phase) -> None:
        """Report that the work enters this phase. Called by the work itself."""
        if self._hears is not None:
            self._hears(phase)

    def snapshot(self) -> Snapshot:
        """Return a copy of everything that it changes, including torch's random state."""
        return self.state.snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        """Restore everything to this snapshot."""
        snapshot.restore()

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """Restore what was changed within the context when it ends, also after an exception."""
        before = self.snapshot()
        try:
            yield
        finally:
            self.restore(before)

    def sequel(self, seed: int) -> Sequel | None:  # noqa: ARG002  by default nothing follows
        """Return what must follow from a part of its observation with this seed, given its current state.

        The rest of the observation is then judged by what follows from the observed part, not by what the reference
        observed.
        """
        return None

    def observe(self, sample: Sample, seed: int, *, draws: int | None = None) -> Observation:
        """Do the work once and return everything that it did.

        It runs on a copy of the sample, from one random state, and restores all state afterwards, so that every run can
        be compared with every other. `draws` is the seed of the random numbers that it draws, if that is another one.
        """
        own = clone(sample)
        with self.preserved():
            torch.manual_seed(seed if draws is None else draws)
            return observed(self.work(own), own, self.state)

    def observe_shaken(self, sample: Sample, seed: int) -> Observation | None:  # noqa: ARG002  see below
        """Observe the same with other rounding errors. Their size shows how exact the results are.

        Return None if that is impossible: by default, there is nothing that can be moved by a rounding.
        """
        return None

    def drawn(self, sample: Sample, seed: int, count: int) -> dict[str, torch.Tensor]:
        """Do the work `count` times and return the figures that show its random numbers, one row for each run.

        Each run starts from the same state, except that the random numbers continue. All state is restored afterwards.
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
        """Do the work once, on these very inputs, and return vectors that show its random numbers.

        By default these are figures of everything it did.
        """
        return figures_of(observed(self.work(sample), sample, self.state))
