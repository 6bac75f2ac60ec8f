"""Where trials run: the one seam between deciding and measuring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from autocompile.core.job import Limits, Reply, Task
from autocompile.core.serde import Record


class MachineEntry(Record, frozen=True):
    """Where candidates are tried: its `name`, "" for the one where the run is, and how many compile side by side."""

    name: str
    lanes: int


class PendingReply(Protocol):
    """What a submitted task will be answered with; it may still run, or wait for its turn."""

    def answer(self) -> Reply:
        """Wait for the task's end, and tell what came of it; asked again, the same.

        Raises MachineLost if it ran on another machine that is gone, RunnerError if the machinery itself is broken, or
        the task was cancelled, and KeyboardInterrupt with nothing left running, whatever else was under way.
        """
        ...

    def is_done(self) -> bool:
        """Whether `answer` need not wait."""
        ...

    def cancel(self) -> None:
        """End the task, with all that it started. What has ended already stays as it is."""
        ...

    @property
    def span_s(self) -> tuple[float, float]:
        """When the task began to run and when it ended, on the run's clock; known once it has ended."""
        ...

    @property
    def pauses_s(self) -> tuple[tuple[float, float], ...]:
        """Parts of that span in which it was paused, for another to be alone; its phases do not count them."""
        ...


class Runner(Protocol):
    """Runs tasks somewhere else and answers with records; a fault there is a `Failure`."""

    @property
    def lanes(self) -> int:
        """How many tasks may run side by side; those beyond wait for their turn, in the order of submission.

        With one, whatever is submitted runs alone. With several, so many that are not exclusive do.
        """
        ...

    @property
    def machines(self) -> Sequence[MachineEntry]:
        """Where candidates may be tried: this machine, with `lanes`, and others of its kind. One that is gone keeps its
        place.
        """
        ...

    def submit(self, task: Task, limits: Limits, *, cache: str, exclusive: bool, machine: int = 0) -> PendingReply:
        """Have `task` run to its end, or be killed at its limits, which count from when it begins to run.

        `exclusive`: it is timed, and needs its device to itself, so nothing runs beside it: others wait, or are paused.
        `total_s` of a task that is paused is wall time all the same, `compile_s` is not. `cache` names a compiler
        cache: a new name is an empty one, a name that came before is as it was left,
        on each machine by itself. `machine`: which one of `machines`; on others than the first, only candidates are
        packed, compiled and tried, and what is packed there lies where the task says when it has ended.

        Raises what `PendingReply.answer` raises.
        """
        ...

    def first_done(self, pending: Sequence[PendingReply]) -> PendingReply:
        """Wait until any of these has ended, and tell which did first. Raises what `PendingReply.answer` raises."""
        ...

    def forget(self, cache: str) -> None:
        """Delete a compiler cache that no task will name again."""
        ...
