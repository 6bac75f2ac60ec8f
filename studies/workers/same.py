"""Tune the same workloads with one worker, with two, and on clusters; compare the winners and the times.

    python studies/workers/same.py record     # about half an hour; run nothing else meanwhile
    python studies/workers/same.py record --ways "1 worker" "Ray, two nodes"    # a row of its own for each workload
    python studies/workers/same.py > studies/workers/same.md

The clusters are a dask cluster with two workers and a Ray cluster with one node or two, all on this machine.
autocompile uses two workers or nodes of one machine as two lanes: two candidates are compiled at the same time, and one
is timed. Each run has the same seed and tries the whole space of `SPACE`. Afterwards, the winners of a workload are
timed in turn in one process. Needs `pip install -e ".[dev]"`.
"""

import argparse
import contextlib
import json
import math
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
sys.path += [str(HERE.parent), str(HERE.parent / "amortized"), str(HERE.parent.parent / "tests" / "real")]

from machine import by_instructions, described, results_path  # noqa: E402
from test_dask import Dask  # noqa: E402
from test_ray import Ray, free_port  # noqa: E402
from workloads import workload  # noqa: E402  the models of studies/amortized

import autocompile  # noqa: E402

WORKLOADS = ("classifier", "encoder")
BUDGET, CALLS = "6m", 100_000
SPACE = """
[search]
max_trials = 9
[dimensions]
runtime = []
freezing = []
[stages]
finals = 0.2
packing = 0.1
[screening]
precision = 0.03
limit_s = 2.0
[finals]
candidates = 2
processes = 2
limit_s = 3.0
"""
RAY = {"RAY_AUTH_MODE": "disabled", "RAY_CLIENT_RECONNECT_GRACE_PERIOD": "2", "GRPC_ENABLE_FORK_SUPPORT": "0"}
ROUNDS, BLOCK_S = 15, 0.1


class TwoDaskWorkers(Dask):
    """A dask cluster with two workers."""

    def ready(self) -> str:
        """Start the second worker, too."""
        address = super().ready()
        options = ("--nthreads", 1, "--no-nanny", "--local-directory", self.directory)
        self.start("second", "distributed.cli.dask_worker", self.address, *options, "--no-dashboard")
        time.sleep(5)
        return address


class TwoRayNodes(Ray):
    """A Ray cluster with two nodes."""

    def ready(self) -> str:
        """Start the second node, too."""
        self.own_port = free_port()
        address = super().ready()
        options = ["--address", f"127.0.0.1:{self.own_port}", "--num-cpus", 1, "--num-gpus", 0]
        options += ["--object-store-memory", 80 << 20, "--disable-usage-stats", "--block"]
        self.start("second", "ray.scripts.scripts", "start", *options)
        time.sleep(15)
        return address

    def end_all(self) -> None:
        """End the second node first."""
        self.end("second")
        super().end_all()


WAYS = ("1 worker", "2 workers", "dask, two workers", "Ray, one node", "Ray, two nodes")


def main() -> None:
    """Record, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", nargs="?", choices=["record"])
    parser.add_argument("--ways", choices=WAYS, nargs="*", default=WAYS)
    arguments = parser.parse_args()
    if arguments.action == "record":
        record(tuple(arguments.ways))
    else:
        print_table()


def record(ways: tuple[str, ...]) -> None:
    """Record the workloads that are not recorded yet in these ways."""
    os.environ.update(RAY)
    path = results_path(HERE / "results" / "same", by_instructions(), described("cpu", "cores", "torch"))
    rows = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    for name in WORKLOADS:
        if any(row["workload"] == name and set(ways) <= set(row["runs"]) for row in rows):
            continue
        with tempfile.TemporaryDirectory(prefix="same", dir="/tmp", ignore_cleanup_errors=True) as directory:
            runs = {way: tuned(name, way, Path(directory)) for way in ways}
            apart = compared(name, {way: Path(directory) / way for way in ways})
        with path.open("a") as stream:
            stream.write(json.dumps({"workload": name, "runs": runs, "relative_time": apart}) + "\n")
        print(name, runs, apart, flush=True)


def tuned(name: str, way: str, directory: Path) -> dict[str, object]:
    """Tune the workload in one way."""
    strategy = directory / "space.toml"
    strategy.write_text(SPACE)
    model, inputs = workload(name)
    with workers_of(way, directory) as workers:
        began = time.monotonic()
        rec = autocompile.optimize(
            model, inputs, BUDGET, calls=CALLS, strategy=str(strategy), output=directory / way, workers=workers,
            progress=False,
        )  # fmt: skip
        took_s = time.monotonic() - began
    document = rec.document
    labels = [entry.label for entry in document.trials]
    search = [lane for lane in document.lanes if lane.doing == "measuring"]
    return {
        "winner": document.winner.label,
        "speedup": document.winner.speedup.value,
        "took_s": round(took_s, 1),
        "measured": sum(entry.status == "measured" for entry in document.trials),
        "repeated": len(labels) - len(set(labels)),
        "last_measured_s": round(max((lane.ended_s for lane in search), default=math.nan), 1),
    }


@contextlib.contextmanager
def workers_of(way: str, directory: Path) -> Iterator[int | str]:
    """Yield the option for the workers, with its cluster running."""
    if "worker" in way and "," not in way:
        yield int(way[0])
        return
    own = directory / way.split(",", maxsplit=1)[0]
    own.mkdir()
    if way.startswith("dask"):
        dask = TwoDaskWorkers(own)
        try:
            yield f"dask://{dask.ready()}"
        finally:
            for role in ("worker", "second", "scheduler"):
                dask.end(role)
        return
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as short:
        ray = TwoRayNodes(Path(short)) if "two" in way else Ray(Path(short))
        try:
            yield f"ray://{ray.ready()}"
        finally:
            ray.end_all()


def compared(name: str, recommendations: dict[str, Path]) -> dict[str, float]:
    """Return the time of a call of each winner relative to that of one worker, timed in turn in this process."""
    import torch

    model, inputs = workload(name)
    served = {way: autocompile.load(str(path), model) for way, path in recommendations.items()}
    seconds: dict[str, list[float]] = {way: [] for way in served}
    order = random.Random(0)
    with torch.no_grad():
        for call in served.values():
            for _ in range(20):
                call(inputs)
        for _ in range(ROUNDS):
            for way in order.sample([*served], len(served)):
                seconds[way].append(block(served[way], inputs))
    first = next(iter(seconds.values()))
    return {way: median(own / one for own, one in zip(found, first, strict=True)) for way, found in seconds.items()}


def block(call: object, inputs: object) -> float:
    """Return the seconds per call in one block, which begins when other threads have stopped spinning."""
    time.sleep(0.3)
    call(inputs)
    calls, began = 0, time.perf_counter()
    while time.perf_counter() - began < BLOCK_S:
        call(inputs)
        calls += 1
    return (time.perf_counter() - began) / calls


def print_table() -> None:
    """Print a row for each workload and way."""
    print("# The same search with one worker, two workers, and on clusters\n")
    print("Generated by `same.py`, which describes the method. The last column is the time of a call of the run's")
    print("winner relative to the winner of one worker, both timed in turn in one process.\n")
    for path in sorted((HERE / "results" / "same").glob("*.jsonl")):
        machine, *rows = [json.loads(line) for line in path.read_text().splitlines()]
        print(f"## {machine['cpu']}, {machine['cores']} cores, torch {machine['torch']}\n")
        print("| workload | workers | winner | speed-up | measured | repeated | whole run | winner's relative time |")
        print("|---|---|---|---|---|---|---|---|")
        for row in rows:
            for way, run in row["runs"].items():
                print(
                    f"| {row['workload']} | {way} | {run['winner']} | {run['speedup']:.2f}x | {run['measured']} "
                    f"| {run['repeated']} | {run['took_s']:.0f} s | {row['relative_time'][way]:.3f} |"
                )
        print()


if __name__ == "__main__":
    main()
