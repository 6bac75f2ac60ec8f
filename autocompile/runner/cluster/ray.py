"""Agents on Ray nodes: each agent is a subprocess of an actor, one for each node of the cluster."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from autocompile.core.errors import InvalidValue, MachineLost, RunnerError
from autocompile.gpus import VISIBLE
from autocompile.runner.cluster.agent import here
from autocompile.runner.cluster.link import Process
from autocompile.runner.cluster.messages import Here

_CONNECTING_S, _WORKERS_S, _CLOSING_S = 10.0, 60.0, 15.0
# Ray sets these variables for each of its workers, but an agent should have the values of its node.
_SET_BY_RAY = ("OMP_NUM_THREADS", VISIBLE)


class RayEngine:
    """The nodes of the cluster whose client server is at `address`.

    Raises InvalidValue if no cluster answers, if it has another version of Ray or Python, if Ray is not installed, or
    if this process already uses Ray: Ray Client has one connection per process.
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
        except Exception as fault:  # whatever Ray raises for what it finds at that address
            self.close()
            remedy = "give the client server's address (port 10001 by default) of a cluster with the versions used here"
            raise InvalidValue(f"{self.name} cannot be used: {_said(fault)}", where=where, remedy=remedy) from fault

    def workers(self) -> Mapping[str, Here | str]:
        try:
            nodes = [node for node in _connected(self._ray).nodes() if node["Alive"]]
        except Exception as fault:
            raise RunnerError(f"{self.name}: it does not report its nodes: {_said(fault)}") from fault
        self._nodes = {f"node {node['NodeID'][:8]}": node["NodeID"] for node in nodes}
        asked = {worker: self._at(worker, _here_on_the_node).remote() for worker in self._nodes}
        return {worker: self._answer(reference) for worker, reference in asked.items()}

    def link(self, worker: str) -> RayLink:
        try:
            actor = self._at(worker, AgentOnTheNode, max_concurrency=2).remote()
            _connected(self._ray).get(actor.is_there.remote(), timeout=_WORKERS_S)
        except Exception as fault:
            raise RunnerError(f"no agent can be started there: {_said(fault)}") from fault
        return RayLink(self._ray, actor)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._ray.shutdown()
        self._logger.setLevel(self._level)

    def _at(self, worker: str, what: Any, **options: Any) -> Any:
        """Return `what` as a Ray task or actor on this node that reserves no CPU there."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415  an extra

        place = NodeAffinitySchedulingStrategy(self._nodes[worker], soft=False)
        return _connected(self._ray).remote(what).options(num_cpus=0, scheduling_strategy=place, **options)

    def _answer(self, reference: Any) -> Here | str:
        try:
            told: Here = _connected(self._ray).get(reference, timeout=_WORKERS_S)
        except Exception as fault:  # the node has gone, or this package cannot be imported there
            return _said(fault)
        return told


class AgentOnTheNode(Process):
    """An agent with the environment that its node was started with."""

    def __init__(self) -> None:
        super().__init__(_of_the_node())

    def is_there(self) -> bool:
        """Return True. Waiting for this call checks that the actor was created."""
        return True


class RayLink:
    """A link to an agent through the actor that owns it."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray, self._actor = ray, actor

    def call(self, request: bytes, timeout_s: float) -> bytes:
        try:
            answer: bytes = _connected(self._ray).get(self._actor.call.remote(request, timeout_s), timeout=timeout_s)
        except Exception as fault:  # whatever Ray raises for a node that is gone
            raise MachineLost(f"it no longer answers: {_said(fault)}") from fault
        return answer

    def close(self) -> None:
        with contextlib.suppress(Exception):
            _connected(self._ray).get(self._actor.close.remote(), timeout=_CLOSING_S)
        with contextlib.suppress(Exception):
            _connected(self._ray).kill(self._actor)


def _imported(where: str) -> Any:
    """Import and return Ray. Raises InvalidValue if it is not installed, or already in use."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if has_token():
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # gRPC's fork handlers are not needed here
    try:
        import grpc  # noqa: F401, PLC0415  Ray Client needs it in addition to Ray
        import ray  # noqa: PLC0415  an extra
    except ImportError:
        remedy = "pip install 'torch-autocompile[ray]'"
        raise InvalidValue("Ray or Ray Client is not installed", where=where, remedy=remedy) from None
    if ray.is_initialized():
        remedy = "call ray.shutdown() first, or tune from the command line"
        raise InvalidValue("this process already uses Ray", where=where, remedy=remedy)
    return ray


def _connected(ray: Any) -> Any:
    """Return Ray. Raises ConnectionError if the connection is lost: most calls would start a cluster here, then."""
    if not ray.is_initialized():
        raise ConnectionError("the connection to the cluster is lost")
    return ray


def has_token() -> bool:
    """Return whether this user has a token for Ray clusters.

    `ray start` requires the token if there is one, and drivers on the cluster send it. Ray Client sends it only in the
    mode that says so, and otherwise waits until it times out (seen with Ray 2.60).
    """
    if os.environ.get("RAY_AUTH_TOKEN"):
        return True
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    return (Path(path) if path else Path.home() / ".ray" / "auth_token").is_file()


def _check_answer(address: str, where: str) -> None:
    """Raise InvalidValue if no server listens at the address. Ray itself would wait for half a minute."""
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
    """Return the variables that Ray sets for its workers with the values of the node; None for those not set there.

    A worker's parent process is the node's raylet.
    """
    try:
        own = psutil.Process().parent()
        before = own.environ() if own is not None else {}
    except psutil.Error:
        before = {}
    return {name: before.get(name) for name in _SET_BY_RAY}


def _said(fault: object) -> str:
    """Return the last line of Ray's message, which names the cause. A version mismatch is returned in full."""
    lines = [line.strip() for line in str(fault).strip().splitlines() if line.strip()]
    if lines and lines[0].startswith("Version mismatch"):
        return " ".join(lines)
    return lines[-1] if lines else type(fault).__name__
