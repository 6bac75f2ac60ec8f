"""The connection from home to an agent, whichever engine has started the agent."""

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
    """Sends a request to one agent and returns its answer."""

    def call(self, request: bytes, timeout_s: float) -> bytes:
        """Return the answer. Raises MachineLost if the agent does not answer in time, or is gone."""
        ...

    def close(self) -> None:
        """End the agent. Never raises. May be called twice."""
        ...


class Process:
    """An agent as a subprocess, with `variables` set in its environment. Variables that are None are removed.

    The agent ends when the process that owns this object ends.
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
        """Return the answer. Raises MachineLost if the agent has ended, or is killed because it gives none in time."""
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
        """End the agent and all processes it started."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        try:
            self._process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
