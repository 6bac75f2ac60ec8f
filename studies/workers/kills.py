"""Kill processes that work on a search at random times, and check that the search goes on and loses nothing.

    python studies/workers/kills.py record 20     # on this machine, dask and Ray: an hour; the machine may be busy
    python studies/workers/kills.py > studies/workers/kills.md

Each run tunes a small network with a baseline and two candidates. One process is killed with SIGKILL at a random time
after the baseline was measured:

- `lane`: with two lanes on this machine, any process that compiles or measures
- `worker`, `scheduler`: of a dask cluster with one worker
- `head`: all processes of a Ray cluster of one node

A run passes if it ends by itself with a winner, no candidate was tried twice, and no process and no file is left over.
A killed lane may take its candidate with it: this candidate then counts as failed. Needs `pip install -e ".[dev]"`.
"""

import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent.parent / "tests" / "real"))

from clusters import AMPLE_S, STRATEGY, Watching, net, tuned  # noqa: E402  the same checks as in the tests
from test_dask import Dask  # noqa: E402
from test_ray import Ray  # noqa: E402

from autocompile.core.goal import Goal  # noqa: E402
from autocompile.core.progress import Silence  # noqa: E402
from autocompile.runner.workers import Workers  # noqa: E402
from autocompile.search.run import Settings  # noqa: E402
from autocompile.search.strategy import load_strategy  # noqa: E402
from autocompile.tuning import Request, tune  # noqa: E402
from autocompile.workload.spool import spool  # noqa: E402

LATEST_S = 12.0
RESULTS = HERE / "results" / "kills" / "kills.jsonl"
CASES = (("this machine", "lane"), ("dask", "worker"), ("dask", "scheduler"), ("ray", "head"))
RAY = {"RAY_AUTH_MODE": "disabled", "RAY_CLIENT_RECONNECT_GRACE_PERIOD": "2", "GRPC_ENABLE_FORK_SUPPORT": "0"}


def main() -> None:
    """Record, or print the table."""
    if sys.argv[1:2] == ["record"]:
        record(int(sys.argv[2]))
    else:
        print_table()


def record(times: int) -> None:
    """Record the repetitions that are not recorded yet."""
    os.environ.update(RAY)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    rows = rows_of(RESULTS)
    for where, victim in CASES:
        done = sum((row["where"], row["victim"]) == (where, victim) for row in rows)
        if done >= times:
            continue
        with (
            tempfile.TemporaryDirectory(prefix="kills", dir="/tmp", ignore_cleanup_errors=True) as directory,
            cluster_of(where, Path(directory)) as cluster,
        ):
            for number in range(done, times):
                place = Path(directory) / f"run{number}"
                place.mkdir()
                row = {"where": where, "victim": victim, **one_run(cluster, victim, place)}
                with RESULTS.open("a") as stream:
                    stream.write(json.dumps(row) + "\n")
                print(row, flush=True)


class Killing(Watching):
    """Kill once, at a random time after the first trial."""

    def __init__(self, cluster: object, kill: Callable[[], bool]) -> None:
        super().__init__(cluster)
        self._kill, self._timer, self.killed = kill, None, False

    def on_trial(self, _trial: object) -> None:
        """Start the timer."""
        if self._timer is None:
            self._timer = threading.Timer(random.uniform(0.0, LATEST_S), self._now)
            self._timer.start()

    def on_decision(self, decision: object) -> None:
        """Ignore decisions; the checks do not need them."""

    def end(self) -> None:
        """Stop the timer, if the run ended before it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()

    def _now(self) -> None:
        self.killed = self._kill()


def one_run(cluster: object, victim: str, place: Path) -> dict[str, object]:
    """Tune with one kill, and return how it went."""
    killing = Killing(cluster, kill_lane if cluster is None else lambda: kill_role(cluster, victim))
    began = time.monotonic()
    try:
        document = tuned(cluster, place, killing) if cluster else tuned_here(place, killing)
    except Exception as fault:
        said = f"{type(fault).__name__}: {fault}".splitlines()[0]
        return {"killed": killing.killed, "fault": said, "took_s": round(time.monotonic() - began, 1)}
    finally:
        killing.end()
    failed = [entry.label for entry in document.trials if entry.status != "measured"]
    return {
        "killed": killing.killed,
        "fault": "",
        "took_s": round(time.monotonic() - began, 1),
        "winner": document.winner.label,
        "trials": len(document.trials),
        "failed": failed,
    }


def tuned_here(place: Path, listener: Silence) -> object:
    """Tune with two lanes on this machine, and check the run like one on a cluster."""
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    path = place / "strategy.toml"
    path.write_text(STRATEGY)
    settings = Settings(Goal(calls=10**9), load_strategy(str(path)), 0, None)
    request = Request(settings, AMPLE_S, str(place / "rec"), workers=Workers(here=2))
    document = tune(lambda _home, directory, _budget_s: spool(*net(), directory), request, listener)
    assert document.complete, document.stopped
    labels = [entry.label for entry in document.trials]
    assert len(labels) == len(set(labels)), f"a candidate was tried twice: {labels}"
    left = {process.pid for process in psutil.Process().children(recursive=True)} - before
    assert not left, f"{len(left)} processes are left over"
    assert not (place / "rec" / ".work").exists(), "files are left over"
    return document


def kill_lane() -> bool:
    """Kill a process that compiles or measures, if there is one."""
    working = [process for process in psutil.Process().children(recursive=True) if works(process)]
    if working:
        with contextlib.suppress(psutil.NoSuchProcess):
            random.choice(working).send_signal(signal.SIGKILL)
            return True
    return False


def works(process: psutil.Process) -> bool:
    """Whether the process is one of the agent's."""
    try:
        return any("autocompile" in word for word in process.cmdline())
    except psutil.Error:
        return False


def kill_role(cluster: object, victim: str) -> bool:
    """Kill a process of the cluster; with Ray's head, all that it started."""
    cluster.running[victim].send_signal(signal.SIGKILL)
    if cluster.engine == "ray":
        cluster.end_all()
    return True


@contextlib.contextmanager
def cluster_of(where: str, directory: Path) -> Iterator[object]:
    """Yield the cluster, or None for this machine alone."""
    if where == "this machine":
        yield None
        return
    own = directory / "cluster"
    own.mkdir()
    cluster = Dask(own) if where == "dask" else Ray(own)
    try:
        yield cluster
    finally:
        if where == "dask":
            cluster.end("worker")
            cluster.end("scheduler")
        else:
            cluster.end_all()


def rows_of(path: Path) -> list[dict[str, object]]:
    """Return the recorded rows."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def print_table() -> None:
    """Print a row for each kind of kill."""
    rows = rows_of(RESULTS)
    print("# Processes of a search, killed at random times\n")
    print("Generated by `kills.py`, which describes the method.\n")
    print("| where | killed | runs | ended before the kill | passed | candidates lost with their process |")
    print("|---|---|---|---|---|---|")
    for case in CASES:
        some = [row for row in rows if (row["where"], row["victim"]) == case]
        passed = [row for row in some if not row["fault"]]
        print(
            f"| {case[0]} | {case[1]} | {len(some)} | {sum(not row['killed'] for row in some)} | {len(passed)} "
            f"| {sum(len(row['failed']) for row in passed)} |"
        )
    for row in rows:
        if row["fault"]:
            print(f"\n- {row['where']}, {row['victim']}: {row['fault']}")


if __name__ == "__main__":
    main()
