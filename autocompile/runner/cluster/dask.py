"""Agents on dask workers: each agent is a subprocess of a dask worker, owned by an actor there."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import Any

from autocompile.core.errors import InvalidValue, MachineLost, RunnerError
from autocompile.runner.cluster.agent import here
from autocompile.runner.cluster.link import Process
from autocompile.runner.cluster.messages import Here

_CONNECTING_S, _WORKERS_S, _CLOSING_S = 10, 30, 15.0
# The logger of dask's client, which logs tracebacks when a scheduler is gone. The run reports that itself, in a line.
_CLIENT = "distributed.client"


class DaskEngine:
    """The workers of the scheduler at `address`. Raises InvalidValue if it does not answer or dask is not installed."""

    def __init__(self, address: str, where: str = "workers") -> None:
        try:
            from distributed import Client  # noqa: PLC0415  an extra
        except ImportError:
            remedy = "pip install 'torch-autocompile[dask]'"
            raise InvalidValue("dask is not installed", where=where, remedy=remedy) from None
        self.name = f"dask://{address}"
        try:
            self._client: Any = Client(f"tcp://{address}", timeout=_CONNECTING_S)
        except (OSError, TimeoutError) as fault:
            remedy = "start one with `dask scheduler`, and workers with `dask worker`"
            raise InvalidValue(f"no dask scheduler answers at {address}", where=where, remedy=remedy) from fault
        self._quiet = _WithoutTracebacks()
        logging.getLogger(_CLIENT).addFilter(self._quiet)

    def workers(self) -> Mapping[str, Here | str]:
        try:
            told = self._client.run(here, on_error="return")
        except Exception as fault:
            raise RunnerError(f"{self.name}: its workers do not answer: {_first_line(fault)}") from fault
        return {worker: one if isinstance(one, Here) else _first_line(one) for worker, one in told.items()}

    def link(self, worker: str) -> DaskLink:
        try:
            placed = self._client.submit(Process, actor=True, workers=[worker], allow_other_workers=False, pure=False)
            return DaskLink(placed.result(timeout=_WORKERS_S))
        except Exception as fault:
            raise RunnerError(f"no agent can be started there: {_first_line(fault)}") from fault

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._client.close(timeout=_CLOSING_S)
        logging.getLogger(_CLIENT).removeFilter(self._quiet)


class DaskLink:
    """A link to an agent through the actor that owns it."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def call(self, request: bytes, timeout_s: float) -> bytes:
        try:
            answer: bytes = self._actor.call(request, timeout_s).result(timeout=timeout_s)
        except Exception as fault:  # whatever dask raises for a worker that is gone
            raise MachineLost(f"it no longer answers: {_first_line(fault)}") from fault
        return answer

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._actor.close().result(timeout=_CLOSING_S)


class _WithoutTracebacks(logging.Filter):
    """Leaves out tracebacks, and records that have nothing else."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info:
            record.exc_info = None
            return bool(record.getMessage())
        return True


def _first_line(fault: object) -> str:
    return next(iter(str(fault).strip().splitlines()), "") or type(fault).__name__
