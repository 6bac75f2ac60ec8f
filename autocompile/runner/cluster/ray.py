"""Agents that Ray brings: each is a process of its own beneath an actor, one for each node of the cluster."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Mapping
from typing import Any

import psutil

from autocompile.core.errors import InvalidValue, MachineLost, RunnerError
from autocompile.gpus import VISIBLE
from autocompile.runner.cluster.agent import here
from autocompile.runner.cluster.link import Process
from autocompile.runner.cluster.messages import Here

_CONNECTING_S, _WORKERS_S, _CLOSING_S = 10.0, 60.0, 15.0
# Ray sets these for each of its workers, which are no measure for what an agent starts.
_SET_BY_RAY = ("OMP_NUM_THREADS", VISIBLE)


class RayEngine:
    """The nodes of the cluster whose client server is at `address`.

    Raises InvalidValue if none answers, or another version of Ray or Python does, Ray is not installed, or this process
    uses Ray already: Ray Client has one connection for all of a process.
    """

    def __init__(self, address: str, where: str = "workers") -> None:
        self._ray = _imported(where)
        self.name = f"ray://{address}"
        self._nodes: dict[str, str] = {}
        self._logger, self._level = logging.getLogger("ray"), logging.getLogger("ray").level
        _check_answer(address, where)
        self._logger.setLevel(logging.CRITICAL)
        try:
            self._ray.init(self.name, logging_level=logging.CRITICAL, log_to_driver=False)
        except Exception as fault:  # whatever Ray raises of what it finds there
            self.close()
            remedy = "give the client server's address (port 10001 by default) of a cluster with the versions used here"
            raise InvalidValue(f"{self.name} cannot be used: {_said(fault)}", where=where, remedy=remedy) from fault

    def workers(self) -> Mapping[str, Here | str]:
        try:
            nodes = [node for node in self._ray.nodes() if node["Alive"]]
        except Exception as fault:
            raise RunnerError(f"{self.name}: it does not tell its nodes: {_said(fault)}") from fault
        self._nodes = {f"node {node['NodeID'][:8]}": node["NodeID"] for node in nodes}
        asked = {worker: self._at(worker, _here_on_the_node).remote() for worker in self._nodes}
        return {worker: self._answer(reference) for worker, reference in asked.items()}

    def link(self, worker: str) -> RayLink:
        try:
            actor = self._at(worker, AgentOnTheNode, max_concurrency=2).remote()
            self._ray.get(actor.is_there.remote(), timeout=_WORKERS_S)
        except Exception as fault:
            raise RunnerError(f"no agent can be started there: {_said(fault)}") from fault
        return RayLink(self._ray, actor)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._ray.shutdown()
        self._logger.setLevel(self._level)

    def _at(self, worker: str, what: Any, **options: Any) -> Any:
        """A task or an actor on this node, which counts as none of its work."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415  an extra

        place = NodeAffinitySchedulingStrategy(self._nodes[worker], soft=False)
        return self._ray.remote(what).options(num_cpus=0, scheduling_strategy=place, **options)

    def _answer(self, reference: Any) -> Here | str:
        try:
            told: Here = self._ray.get(reference, timeout=_WORKERS_S)
        except Exception as fault:  # the node has gone, or this package cannot be imported there
            return _said(fault)
        return told


class AgentOnTheNode(Process):
    """An agent in the environment that its node was started in."""

    def __init__(self) -> None:
        super().__init__(_of_the_node())

    def is_there(self) -> bool:
        """Whether it was made: an actor is made when it is first asked."""
        return True


class RayLink:
    """Reaches an agent through the actor that holds it."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray, self._actor = ray, actor

    def call(self, request: bytes, timeout_s: float) -> bytes:
        try:
            answer: bytes = self._ray.get(self._actor.call.remote(request, timeout_s), timeout=timeout_s)
        except Exception as fault:  # whatever Ray raises of a node that is gone
            raise MachineLost(f"it does not answer any more: {_said(fault)}") from fault
        return answer

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._ray.get(self._actor.close.remote(), timeout=_CLOSING_S)
        with contextlib.suppress(Exception):
            self._ray.kill(self._actor)


def _imported(where: str) -> Any:
    """Ray. Raises InvalidValue if it is not there, or in use."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # what it does as this process starts others is not needed
    try:
        import grpc  # noqa: F401, PLC0415  what Ray Client needs beside Ray
        import ray  # noqa: PLC0415  an extra
    except ImportError:
        remedy = "pip install 'torch-autocompile[ray]'"
        raise InvalidValue("Ray with its client is not installed", where=where, remedy=remedy) from None
    if ray.is_initialized():
        remedy = "call ray.shutdown() before, or tune from the command line"
        raise InvalidValue("this process uses Ray already", where=where, remedy=remedy)
    return ray


def _check_answer(address: str, where: str) -> None:
    """Raises InvalidValue if nobody listens there: Ray itself would wait for half a minute."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECTING_S).close()
    except (OSError, OverflowError) as fault:
        remedy = "start one with `ray start --head`, and give the address of its client server, by default port 10001"
        raise InvalidValue(f"no Ray cluster answers at {address}", where=where, remedy=remedy) from fault


def _here_on_the_node() -> Here:
    own = dict(os.environ)
    try:
        _set(_of_the_node())
        return here()
    finally:
        _set({name: own.get(name) for name in _SET_BY_RAY})


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


def _of_the_node() -> dict[str, str | None]:
    """What Ray sets for its workers, as it was where the node was started; None where it was not set.

    A worker's parent is the node's own process, the raylet.
    """
    try:
        own = psutil.Process().parent()
        before = own.environ() if own is not None else {}
    except psutil.Error:
        before = {}
    return {name: before.get(name) for name in _SET_BY_RAY}


def _said(fault: object) -> str:
    """The last line of what Ray says, which tells the cause; a difference of versions whole."""
    lines = [line.strip() for line in str(fault).strip().splitlines() if line.strip()]
    if lines and lines[0].startswith("Version mismatch"):
        return " ".join(lines)
    return lines[-1] if lines else type(fault).__name__
