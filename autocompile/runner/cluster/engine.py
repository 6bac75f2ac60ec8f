"""What brings agents to where workers are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from autocompile.runner.cluster.link import Link
from autocompile.runner.cluster.messages import Here


class Engine(Protocol):
    """Workers that can be reached. `name` is what users call it, with its address."""

    @property
    def name(self) -> str: ...

    def workers(self) -> Mapping[str, Here | str]:
        """Each worker's machine, by the worker's name; or why it cannot tell, in words."""
        ...

    def link(self, worker: str) -> Link:
        """An agent of ours where this worker is. Raises RunnerError if it cannot be started."""
        ...

    def close(self) -> None:
        """Let go of the workers. Never raises; may be called twice."""
        ...
