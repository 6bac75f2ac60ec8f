"""The interface of an engine, which starts agents where the workers are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from autocompile.runner.cluster.link import Link
from autocompile.runner.cluster.messages import Here


class Engine(Protocol):
    """A cluster or set of GPUs with workers. `name` is the engine's name for users, with its address."""

    @property
    def name(self) -> str: ...

    def workers(self) -> Mapping[str, Here | str]:
        """Return each worker's machine by the worker's name, or the reason why the worker cannot report it."""
        ...

    def link(self, worker: str) -> Link:
        """Start an agent at this worker and return a link to it. Raises RunnerError if it cannot be started."""
        ...

    def close(self) -> None:
        """Disconnect from the workers. Never raises. May be called twice."""
        ...
