"""From what the user wrote to a runner: the engine, the machines that join, and an agent on each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from autocompile.core.workload import Workload
from autocompile.runner.cluster.agent import here
from autocompile.runner.cluster.dask import DaskEngine
from autocompile.runner.cluster.engine import Engine
from autocompile.runner.cluster.gpus import GpuEngine
from autocompile.runner.cluster.joining import Joined, difference_of_gpus, join, linked
from autocompile.runner.cluster.messages import Here
from autocompile.runner.cluster.ray import RayEngine
from autocompile.runner.cluster.runner import ClusterRunner
from autocompile.runner.local import LocalRunner
from autocompile.runner.workers import Workers

Tell = Callable[[str, str], None]


@dataclass(frozen=True)
class Reached:
    """A cluster that answers, and who of it joins."""

    engine: Engine
    joined: Joined
    home: Here

    @contextmanager
    def runner(self, home: LocalRunner, workload: Workload, tell: Tell) -> Iterator[ClusterRunner]:
        """Home and all machines that can work on this workload; `tell` hears of those that cannot, and why."""
        with ClusterRunner(home) as runner:
            sites = {site: difference_of_gpus(workload, self.home, site.there) for site in self.joined.sites}
            others = [(site.name, reason) for site, reason in sites.items() if reason]
            links, failed = linked(self.engine, [site for site, reason in sites.items() if not reason])
            for name, reason in (*self.joined.refused, *others, *failed, *runner.add(links, workload)):
                tell(name, reason)
            yield runner


@contextmanager
def reached(workers: Workers) -> Iterator[Reached | None]:
    """The cluster that was asked for, None if none was. Raises InvalidValue, within seconds, if it is not to be had."""
    if not workers.engine:
        yield None
        return
    engine = _engine(workers)
    try:
        home = here()
        yield Reached(engine, join(engine, home, apart=workers.apart or workers.engine == "gpu"), home)
    finally:
        engine.close()


def _engine(workers: Workers) -> Engine:
    if workers.engine == "gpu":
        return GpuEngine()
    if workers.engine == "ray":
        return RayEngine(workers.address)
    return DaskEngine(workers.address)
