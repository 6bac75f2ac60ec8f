"""The interface of runners, which run trials. It separates deciding from measuring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from autocompile.core.job import Limits, Reply, Task
from autocompile.core.serde import Record


class MachineEntry(Record, frozen=True):
    """A machine on which candidates are tried: its `name` ("" for this machine), and how many compile in parallel."""

    name: str
    lanes: int


class PendingReply(Protocol):
    """The future reply to a submitted task, which may still be running or waiting for its turn."""

    def answer(self) -> Reply:
        """Wait for the end of the task, and return its reply. Further calls return the same reply.

        Raises MachineLost if the task ran on another machine that no longer answers; RunnerError if the runner itself
        failed, or if the task was cancelled; and KeyboardInterrupt, after all other tasks have been stopped too.
        """
        ...

    def is_done(self) -> bool:
        """Return whether `answer` would return at once."""
        ...

    def cancel(self) -> None:
        """Stop the task, and all processes that it started. This has no effect on a task that has ended."""
        ...

    @property
    def span_s(self) -> tuple[float, float]:
        """When the task began to run and when it ended, on the run's clock. Only available after its end."""
        ...

    @property
    def pauses_s(self) -> tuple[tuple[float, float], ...]:
        """The periods in which the task was paused so that another could run alone. Its phases do not include them."""
        ...


class Runner(Protocol):
    """Runs tasks in other processes and replies with records; a fault there is a `Failure`."""

    @property
    def lanes(self) -> int:
        """How many tasks may run in parallel. Further tasks wait for their turn, in the order of submission.

        With one lane, every task runs alone. With several, exclusive tasks still run alone.
        """
        ...

    @property
    def machines(self) -> Sequence[MachineEntry]:
        """The machines on which candidates may be tried: this one, and others of its kind.

        A machine that no longer answers keeps its place in the sequence.
        """
        ...

    def submit(self, task: Task, limits: Limits, *, cache: str, exclusive: bool, machine: int = 0) -> PendingReply:
        """Run `task` to its end, or kill it at its limits, which count from the time when it begins to run.

        Raises what `PendingReply.answer` raises.

        Args:
            task: The task.
            limits: When to kill it. While a task is paused, `total_s` continues to count, and `compile_s` does not.
            cache: The name of a compiler cache. A new name is an empty cache; each machine has its own.
            exclusive: Whether the task is timed, and therefore must run alone. Other tasks wait, or are paused.
            machine: An index into `machines`. On machines other than the first, candidates can only be packed, compiled
                and tried. Packed files are copied to the directory that the task names.
        """
        ...

    def first_done(self, pending: Sequence[PendingReply]) -> PendingReply:
        """Wait until one of these has ended, and return the first. Raises what `PendingReply.answer` raises."""
        ...

    def forget(self, cache: str) -> None:
        """Delete a compiler cache that no further task will use."""
        ...
