"""How home reaches an agent, whoever brought it to where it is."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Protocol

from autocompile.core.errors import MachineLost
from autocompile.runner.cluster import frames

_ENDING_S = 10.0


class Link(Protocol):
    """Carries a request to one agent and its answer back."""

    def call(self, request: bytes, timeout_s: float) -> bytes:
        """Raises MachineLost if there is no answer in time, or nobody who could give one."""
        ...

    def close(self) -> None:
        """End the agent. Never raises; may be called twice."""
        ...


class Process:
    """An agent as a process of this one, with `variables` in its environment, but for those that are None.

    It ends with whoever holds this.
    """

    def __init__(self, variables: Mapping[str, str | None] | None = None) -> None:
        self._turn = threading.Lock()
        environment = {**os.environ, **(variables or {})}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "autocompile.runner.cluster.agent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: value for name, value in environment.items() if value is not None},
            start_new_session=True,
        )
        if self._process.stdin is not None:
            os.set_blocking(self._process.stdin.fileno(), False)

    def call(self, request: bytes, timeout_s: float) -> bytes:
        """The answer. Raises MachineLost if the process has ended, or is ended since it gives none in time."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._turn:
            try:
                frames.write(self._process.stdin.fileno(), request, timeout_s)
                answer = frames.read(self._process.stdout.fileno(), timeout_s)
            except TimeoutError as fault:
                self._process.kill()
                raise MachineLost(f"its agent gave no answer in {timeout_s:g} s") from fault
            except (OSError, ValueError) as fault:  # ValueError: it was closed
                raise MachineLost(f"its agent has ended: {fault}") from fault
        if answer is None:
            raise MachineLost("its agent has ended")
        return answer

    def close(self) -> None:
        """End it, with all that it started."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        try:
            self._process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
