"""Open a runner for the workers that the user asked for: the engine, the machines that join, and their agents."""

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
    """A cluster that answers, and its machines that join the run."""

    engine: Engine
    joined: Joined
    home: Here

    @contextmanager
    def runner(self, home: LocalRunner, workload: Workload, tell: Tell) -> Iterator[ClusterRunner]:
        """Yield a runner over home and all machines that can work on this workload.

        `tell` is called with the name of each machine that cannot, and the reason.
        """
        with ClusterRunner(home) as runner:
            sites = {site: difference_of_gpus(workload, self.home, site.there) for site in self.joined.sites}
            others = [(site.name, reason) for site, reason in sites.items() if reason]
            links, failed = linked(self.engine, [site for site, reason in sites.items() if not reason])
            for name, reason in (*self.joined.refused, *others, *failed, *runner.add(links, workload)):
                tell(name, reason)
            yield runner


@contextmanager
def reached(workers: Workers) -> Iterator[Reached | None]:
    """Yield the cluster that the user asked for, or None if there is none to use.

    Raises InvalidValue, within seconds, if the cluster cannot be used.
    """
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
