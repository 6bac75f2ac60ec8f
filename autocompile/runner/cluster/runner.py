"""Run trials at home and on other machines."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from autocompile.core.job import Limits, Task
from autocompile.core.runner import MachineEntry, PendingReply
from autocompile.core.workload import Workload
from autocompile.runner.cluster.files import Digests
from autocompile.runner.cluster.link import Link
from autocompile.runner.cluster.machine import Machine, RemoteTask
from autocompile.runner.local import LocalRunner
from autocompile.runner.turn import Turn

# How often to check on children at home while waiting for other machines as well.
_GLANCE_S = 0.1


class ClusterRunner:
    """A `core.runner.Runner` over `home` and other machines. The others run only the tasks submitted to them."""

    def __init__(self, home: LocalRunner) -> None:
        self._home = home
        self._machines: list[Machine] = []
        self._digests = Digests()
        self._news = threading.Condition()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add(self, reached: Sequence[tuple[str, int, Link]], workload: Workload) -> list[tuple[str, str]]:
        """Open machines, given by name, lanes and link. Return those that cannot be used, each with the reason."""
        opened = [Machine(name, lanes, link, self._digests, self._tell) for name, lanes, link in reached]
        with ThreadPoolExecutor(max(1, len(opened))) as pool:
            problems = list(pool.map(lambda machine: machine.open(workload), opened))
        for machine, problem in zip(opened, problems, strict=True):
            if problem:
                machine.close()
            else:
                self._machines.append(machine)
        return [(machine.name, problem) for machine, problem in zip(opened, problems, strict=True) if problem]

    def close(self) -> None:
        """End the agents on all other machines. The owner of `home` has to close it."""
        for machine in self._machines:
            machine.close()

    @property
    def lanes(self) -> int:
        """The number of children that can compile at the same time at home."""
        return self._home.lanes

    @property
    def machines(self) -> tuple[MachineEntry, ...]:
        """See `core.runner.Runner`."""
        return *self._home.machines, *(MachineEntry(machine.name, machine.lanes) for machine in self._machines)

    def submit(self, task: Task, limits: Limits, *, cache: str, exclusive: bool, machine: int = 0) -> Turn | RemoteTask:
        """See `core.runner.Runner`."""
        if not machine:
            return self._home.submit(task, limits, cache=cache, exclusive=exclusive)
        chosen = self._machines[machine - 1]
        return chosen.submit(task, limits, cache=cache, exclusive=exclusive, wait_for=self.first_done)

    def first_done(self, pending: Sequence[PendingReply]) -> PendingReply:
        """See `core.runner.Runner`."""
        if all(isinstance(one, Turn) for one in pending):
            return self._home.first_done(pending)
        while True:
            done = [one for one in pending if one.is_done()]
            if done:
                return min(done, key=lambda one: one.span_s[1])
            with self._news:
                self._news.wait(_GLANCE_S)

    def forget(self, cache: str) -> None:
        """Delete a compiler cache at home and on all machines."""
        self._home.forget(cache)
        for machine in self._machines:
            machine.forget(cache)

    def _tell(self) -> None:
        with self._news:
            self._news.notify_all()
