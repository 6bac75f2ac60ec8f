"""Replay the recorded spaces of studies/policy; measure how much sooner several workers come within 2% of the best.

    python studies/workers/sooner.py record     # 5 seeds, a few minutes; no torch; the machine may be busy
    python studies/workers/sooner.py > studies/workers/README.md

Each worker asks the real policy (`following`) for the next candidate while other trials are still running, as several
runs on one study do. No candidate is tried twice, and all workers know each result immediately. The clock is that of
the recording. Each seed scales the time of every trial (`workshop.py`), so that no result depends on which of two
trials happens to end first. The first trials are the baseline, for which all workers wait, and plain `torch.compile`.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace as with_fields
from itertools import product
from pathlib import Path
from statistics import median

import optuna
from msgspec.structs import replace
from workshop import Workshop

from autocompile.core.candidate import Candidate, Value
from autocompile.core.goal import Goal
from autocompile.core.outcome import Measurement
from autocompile.core.progress import Silence
from autocompile.runner.replay import Recording
from autocompile.runner.simulated import VirtualClock
from autocompile.runtime.catalogue import open_space
from autocompile.search.archive import Archive
from autocompile.search.attempt import Attempt, begin, finish
from autocompile.search.choose.evidence import Evidence
from autocompile.search.ledger import Ledger
from autocompile.search.run import Bench, Settings
from autocompile.search.screening import one_trial
from autocompile.search.session import prepare_toolchain, take_profile
from autocompile.search.strategy import load_strategy
from autocompile.search.study.family import StudyName
from autocompile.search.wanted import following
from autocompile.space.surroundings import surroundings_of

HERE = Path(__file__).parent
POLICY = HERE.parent / "policy"
WORKERS, SEEDS, WITHIN = (1, 2, 4, 8, 16), range(5), 1.02
# Ways to have several workers: the number of devices, and the number of processes that only compile.
WAYS = {
    "machines": ("machines; each compiles and times its own trials", lambda n: (n, 0)),
    "machines, compiling ahead": ("machines; each compiles the next candidate while it times one", lambda n: (n, n)),
    "lanes on one device": ("processes on one machine that compile for one device", lambda n: (1, n)),
}  # fmt: skip


def main() -> None:
    """Record, or print the README."""
    optuna.logging.disable_default_handler()
    if sys.argv[1:] == ["record"]:
        for directory in sorted((POLICY / "results" / "settings").iterdir()):
            record(directory)
    else:
        print_readme()


def record(directory: Path) -> None:
    """Replay all cases, into one file for the machine of the recordings."""
    paths = sorted(directory.glob("*.jsonl"))
    cases = list(product(paths, WAYS, WORKERS, SEEDS))
    (HERE / "results").mkdir(exist_ok=True)
    with ProcessPoolExecutor(2) as pool, (HERE / "results" / f"{directory.name}.jsonl").open("w") as stream:
        for line in pool.map(replayed, cases, chunksize=5):
            stream.write(json.dumps(line) + "\n")
            stream.flush()


def replayed(case: tuple[Path, str, int, int]) -> dict[str, object]:
    """Replay one search: the seconds from the profile until it is within 2% of the best, and the use of the devices."""
    path, way, workers, seed = case
    recording = Recording.read(path)
    devices, compilers = WAYS[way][1](workers)
    clock = VirtualClock()
    workshop = Workshop(recording, clock, devices=devices, compilers=compilers, seed=seed)
    with tempfile.TemporaryDirectory() as directory:
        search = Search(workshop, devices, compilers, Path(directory))
        found_s, tried = search.until_found()
        timing_share = workshop.devices.busy_s / (devices * clock.now)
        whole_s = search.until_all_are_tried() if way == "machines" else 0.0
    return {
        "workload": path.stem,
        "way": way,
        "workers": workers,
        "seed": seed,
        "seconds": round(found_s, 2),
        "trials": tried,
        "least_s": round(search.least_s, 2),
        "timing_share": round(timing_share, 3),
        "whole_s": round(whole_s, 2),
    }


class Search:
    """A search of the policy with several trials running at once, until a good candidate is found."""

    def __init__(self, workshop: Workshop, devices: int, compilers: int, directory: Path) -> None:
        self._workshop = workshop
        recording = workshop.recording
        strategy = load_strategy(str(POLICY / "space.toml"))
        strategy = replace(strategy, seeds=(), search=replace(strategy.search, sampler="policy"))
        self._bench = Bench(
            workload=recording.about.workload,
            environment=recording.about.environment,
            runner=workshop,
            ledger=Ledger(1e7, Silence(), clock=workshop.clock),
            listener=Silence(),
            settings=Settings(Goal(), strategy, 0, None),
            reference=directory / "reference.pt",
            artifact=directory / "artifact",
        )
        # One running trial for each compiler and each device, and one that waits in between.
        self._most = devices if not compilers else compilers + devices + 1
        self._good = good_plans(recording)
        self._hopeless: set[tuple[str, Value]] = set()
        self._under_way: list[Attempt] = []

    def until_found(self) -> tuple[float, int]:
        """Search until a good candidate is found; return the seconds from the profile and the number of trials."""
        bench = self._bench
        toolchain = prepare_toolchain(bench)
        started_s = self._workshop.clock.now
        profile = take_profile(bench)
        profiled_s = self._workshop.clock.now - started_s
        around = surroundings_of(bench.workload, bench.environment, profile, toolchain)
        around = with_fields(around, loads_artifacts=bench.settings.goal.loads_artifacts)
        space, _left_out = open_space(around, bench.settings.strategy.dimensions)
        archive = Archive(StudyName("replay", "", "", "", "seconds", {}), None, bench.settings.strategy.search, 0)
        evidence = Evidence(profile, bench.environment, bench.workload.device_type)
        archive.enqueue(space.baseline(), "baseline", space)
        one_trial(bench, space, archive)
        baseline_s = self._workshop.clock.now - started_s - profiled_s
        outcomes = self._workshop.recording.outcomes
        self.least_s = profiled_s + baseline_s + min(sum(outcomes[key].phases_s.values()) for key in self._good)
        self._started_s, self._space, self._archive, self._evidence = started_s, space, archive, evidence
        archive.enqueue(space.plain_compile(), "plain", space)
        self._begin()
        self._go_on(until=lambda: any(key in self._good for _when, key in self._workshop.timeline))
        found_s = next(when for when, key in self._workshop.timeline if key in self._good)
        return found_s - started_s, sum(when <= found_s for when, _key in self._workshop.timeline)

    def until_all_are_tried(self) -> float:
        """Continue until the policy has no more candidates; return the seconds from the profile."""
        self._go_on(until=lambda: False)
        return self._workshop.clock.now - self._started_s

    def _go_on(self, until: Callable[[], bool]) -> None:
        """Continue until `until()` is true or no candidate is left."""
        while not until():
            while len(self._under_way) < self._most:
                candidate = following(self._bench, self._space, self._archive, self._evidence, self._hopeless)
                if not isinstance(candidate, Candidate):
                    break
                self._archive.enqueue(candidate, "search", self._space)
                self._begin()
            if not self._under_way:
                return
            done = self._workshop.first_done([attempt.source.pending for attempt in self._under_way])
            ended = next(attempt for attempt in self._under_way if attempt.source.pending is done)
            self._under_way.remove(ended)
            finish(self._bench, self._space, self._archive, ended)

    def _begin(self) -> None:
        self._under_way.append(begin(self._bench, self._space, self._archive, self._archive.ask(self._space)))


def good_plans(recording: Recording) -> set[str]:
    """Return the plans within 2% of the lowest amortized time of all recorded programs, for the calls of one hour."""
    calls = Goal().calls_for(recording.about.profile.baseline_ms.value / 1e3)
    totals = {key: total(outcome, calls) for key, outcome in recording.outcomes.items()}
    return {key for key, seconds in totals.items() if seconds <= WITHIN * min(totals.values())}


def total(outcome: object, calls: float) -> float:
    """Return the total time of a process with `calls` calls, in units of a baseline call; infinite for a failure."""
    if not isinstance(outcome, Measurement):
        return math.inf
    return outcome.startup.total_s / (outcome.baseline.mean_ms / 1e3) + calls * outcome.ratio.value


def print_readme() -> None:
    """Print the README: the text, with the tables in it."""
    print((HERE / "text.md").read_text().split("<!-- tables -->")[0].rstrip() + "\n")
    for path in sorted((HERE / "results").glob("*.jsonl")):
        print(f"## Recorded on {path.stem}\n")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for way, (said, _pools) in WAYS.items():
            print_table(way, said, [line for line in lines if line["way"] == way], lines)
        print_whole([line for line in lines if line["way"] == "machines"])
    print((HERE / "text.md").read_text().split("<!-- tables -->")[1].strip())


def print_table(way: str, said: str, lines: list[dict], every: list[dict]) -> None:
    """Print the seconds by workload and number of workers, and the speed-up over one that compiles nothing ahead."""
    print(f"### {way[0].upper()}{way[1:]}\n\nWorkers are {said}. Seconds, and the speed-up over one worker alone.\n")
    print(f"| workload | at least | one alone | {' | '.join(map(str, WORKERS))} |")
    print("|---|---|---|" + "---|" * len(WORKERS))
    gains: dict[int, list[float]] = {workers: [] for workers in WORKERS}
    bounds = []
    for name in sorted({line["workload"] for line in lines}):
        alone = {
            line["seed"]: line["seconds"]
            for line in every
            if (line["workload"], line["way"], line["workers"]) == (name, "machines", 1)
        }
        cells = []
        for workers in WORKERS:
            some = [line for line in lines if (line["workload"], line["workers"]) == (name, workers)]
            gain = median(alone[line["seed"]] / line["seconds"] for line in some)
            gains[workers].append(gain)
            cells.append(f"{median(line['seconds'] for line in some):.0f} s, {gain:.2f}x")
        least_s, alone_s = median(line["least_s"] for line in lines if line["workload"] == name), median(alone.values())
        bounds.append(alone_s / least_s)
        print(f"| {name} | {least_s:.0f} s, {alone_s / least_s:.2f}x | {alone_s:.0f} s | {' | '.join(cells)} |")
    medians = " | ".join(f"{median(gains[workers]):.2f}x" for workers in WORKERS)
    print(f"| median | {median(bounds):.2f}x | | {medians} |\n")


def print_whole(lines: list[dict]) -> None:
    """Print the times until the policy has no more candidates."""
    print("### Until the whole space is tried\n\nWorkers are machines; each compiles and times its own trials.\n")
    print(f"| workload | one alone | {' | '.join(map(str, WORKERS))} |")
    print("|---|---|" + "---|" * len(WORKERS))
    gains: dict[int, list[float]] = {workers: [] for workers in WORKERS}
    for name in sorted({line["workload"] for line in lines}):
        whole = {(line["workers"], line["seed"]): line["whole_s"] for line in lines if line["workload"] == name}
        for workers in WORKERS:
            gains[workers].append(median(whole[1, seed] / whole[workers, seed] for seed in SEEDS))
        cells = " | ".join(f"{gains[workers][-1]:.2f}x" for workers in WORKERS)
        print(f"| {name} | {median(whole[1, seed] for seed in SEEDS):.0f} s | {cells} |")
    print(f"| median | | {' | '.join(f'{median(gains[workers]):.2f}x' for workers in WORKERS)} |\n")


if __name__ == "__main__":
    main()
