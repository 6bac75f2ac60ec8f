"""Choose the workers of a cluster for a run: those on machines of the same kind as home, one agent per machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autocompile.core.environment import Environment
from autocompile.core.errors import InvalidValue, RunnerError
from autocompile.core.workload import Workload
from autocompile.runner.cluster.engine import Engine
from autocompile.runner.cluster.link import Link
from autocompile.runner.cluster.messages import Here


@dataclass(frozen=True)
class Site:
    """A machine of the cluster.

    `worker`: the worker at which an agent is started. `lanes`: how many children can compile there at the same time.
    `there`: the worker's description of the machine.
    """

    name: str
    worker: str
    lanes: int
    there: Here


@dataclass(frozen=True)
class Joined:
    """The part of a cluster that joins a run.

    `here`: how many of its workers are on this machine. `sites`: its other machines. `refused`: the workers that cannot
    be used, each with the reason.
    """

    here: int
    sites: tuple[Site, ...]
    refused: tuple[tuple[str, str], ...]


def join(engine: Engine, home: Here, *, apart: bool = False, where: str = "workers") -> Joined:
    """Choose among all workers. Workers on one machine become one site with several lanes, or lanes of home.

    `apart`: each worker becomes a separate site. Raises InvalidValue if no worker can be used.
    """
    told = engine.workers()
    refused, fitting = [], {}
    for worker, one in told.items():
        reason = one if isinstance(one, str) else difference(home.environment, one.environment)
        if isinstance(one, str) or reason:
            refused.append((_called(worker, one), reason))
        else:
            fitting[worker] = one
    if not fitting and not apart:
        _refuse(engine, refused, where)
    at_home = [worker for worker, one in fitting.items() if one.machine == home.machine and not apart]
    sites = _sites({worker: one for worker, one in fitting.items() if worker not in at_home}, apart=apart)
    return Joined(min(len(at_home), home.environment.cores), tuple(sites), tuple(refused))


def linked(engine: Engine, sites: Sequence[Site]) -> tuple[list[tuple[str, int, Link]], list[tuple[str, str]]]:
    """Start an agent at each site. Return the links, and the sites where none could be started, with the reason."""
    links: list[tuple[str, int, Link]] = []
    refused = []
    for site in sites:
        try:
            links.append((site.name, site.lanes, engine.link(site.worker)))
        except RunnerError as fault:
            refused.append((site.name, str(fault)))
    return links, refused


def difference(home: Environment, there: Environment) -> str:
    """Describe how another machine differs in kind from home, apart from its GPUs; "" if it is of the same kind."""
    if home.fingerprint == there.fingerprint:
        return ""
    return f"is of another kind: {', '.join(_differences(home, there))}"


def difference_of_gpus(workload: Workload, home: Here, there: Here) -> str:
    """Describe why measurements there do not hold for the GPUs that the workload uses here; "" if they do.

    NVML does not report which of several kinds of GPU CUDA orders first. Therefore the GPUs there must either all be of
    the one kind that is used here, or be the same list as here.
    """
    if not workload.gpus:
        return ""
    used = list(dict.fromkeys(gpu.name for gpu in workload.gpus))
    needed = max(len(workload.gpus), int(workload.device.partition(":")[2] or 0) + 1)
    found, at_home = (_listed(tuple(dict.fromkeys(names))) for names in (there.gpus, used))
    if there.environment.driver != home.environment.driver:
        theirs, ours = there.environment.driver or "none", home.environment.driver or "none"
        return f"is of another kind: driver {theirs}, here {ours}"
    if there.gpus != home.gpus and (len(used) > 1 or not set(there.gpus) <= set(used)):
        return f"is of another kind: {found}, here {at_home}"
    if len(there.gpus) < needed:
        return f"has {len(there.gpus) or 'no'} GPU{'s' * (len(there.gpus) > 1)}, and the workload needs {needed}"
    return ""


def _listed(gpus: Sequence[str]) -> str:
    return " and ".join(gpus) or "no GPU"


def _differences(home: Environment, there: Environment) -> Iterator[str]:
    for name in ("torch", "autocompile", "python", "compiler", "cpu", "architecture", "cores"):
        ours, theirs = getattr(home, name), getattr(there, name)
        if ours != theirs:
            yield f"{name} {theirs or 'none'}, here {ours or 'none'}"
    if home.cpu_features != there.cpu_features:
        yield "other instruction sets"


def _sites(workers: dict[str, Here], *, apart: bool) -> Iterator[Site]:
    machines: dict[str, list[str]] = {}
    for worker, one in workers.items():
        machines.setdefault(worker if apart else one.machine, []).append(worker)
    for members in machines.values():
        first = workers[members[0]]
        name = f"{first.host} ({members[0]})" if apart else first.host
        yield Site(name, members[0], min(len(members), first.environment.cores), first)


def _refuse(engine: Engine, refused: list[tuple[str, str]], where: str) -> None:
    """Raise InvalidValue with the first reason for a refusal."""
    if not refused:
        raise InvalidValue(f"{engine.name} has no worker", where=where, remedy="start workers, then try again")
    name, reason = refused[0]
    others = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
    remedy = "give workers on machines of this kind, with the same versions"
    raise InvalidValue(f"no worker of {engine.name} can be used: {name} {reason}{others}", where=where, remedy=remedy)


def _called(worker: str, one: Here | str) -> str:
    return f"{one.host} ({worker})" if isinstance(one, Here) else worker
