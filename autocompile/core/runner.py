"""Where trials run: the one seam between deciding and measuring."""

from __future__ import annotations

from typing import Protocol

from autocompile.core.job import Limits, Reply, Task


class Runner(Protocol):
    """Runs a task somewhere else and answers with a record; a fault there is a `Failure`.

    `cache` names a compiler cache: a new name is an empty one, a name seen before is as it was left.
    Raises RunnerError if the machinery itself is broken, KeyboardInterrupt with nothing left running.
    """

    def run(self, task: Task, limits: Limits, *, cache: str) -> Reply:
        """Run `task` to its end, or kill it at its limits."""
        ...

    def forget(self, cache: str) -> None:
        """Delete a compiler cache that no task will name again."""
        ...
