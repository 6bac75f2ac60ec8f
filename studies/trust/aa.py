"""A/A test: let the judge compare identical configurations. A verdict that prefers one of them is a false win.

    python studies/trust/aa.py --verdicts 100            # quiet machine
    python studies/trust/aa.py --verdicts 100 --busy     # while another process is busy
    python studies/trust/aa.py --verdicts 12 --lanes     # while two lanes of the same run compile

Each verdict compares the baseline with a candidate that builds the same program, in three fresh processes each. The
measurements are appended to results/, so an interrupted recording can be continued. `python studies/trust/table.py`
passes them to `autocompile.search.judge` and generates the README's table of its verdicts.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

from workloads import workloads

from autocompile.core.job import Acceptance, CompileTask, Limits, ProfileTask, Timing, TrialTask
from autocompile.core.outcome import Measurement
from autocompile.core.plan import Plan
from autocompile.core.profile import Profile
from autocompile.core.runner import PendingReply
from autocompile.core.tolerance import published_tolerance
from autocompile.runner.local import LocalRunner
from autocompile.search.errand import reply_to
from autocompile.workload.spool import spool

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

from machine import by_processor, described, device_type, results_path  # noqa: E402

PROCESSES, COMPILERS = 3, 2
TIMING = Timing(precision=0.02, limit_s=0.6)


def main() -> None:
    """Record verdicts, with the models in turn, until the requested number is reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verdicts", type=int, default=100)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--lanes", action="store_true")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    condition = "busy" if arguments.busy else "lanes" if arguments.lanes else "quiet"
    path = results_of(arguments.results)
    done = [row for row in read_rows(path) if row["kind"] == "aa" and row["condition"] == condition]
    with tempfile.TemporaryDirectory() as directory, beside(busy=arguments.busy):
        bench = Bench(Path(directory), compilers=COMPILERS if arguments.lanes else 0)
        with bench.runner:
            names = list(workloads())
            for number in range(len(done), arguments.verdicts):
                row = bench.verdict(names[number % len(names)], number)
                with path.open("a") as stream:
                    stream.write(json.dumps({"kind": "aa", "condition": condition, "number": number, **row}) + "\n")
                print(number, condition, row["model"], row["processes"], flush=True)


class Bench:
    """The three workloads, spooled and profiled on one runner, on which so many `compilers` are always at work."""

    def __init__(self, directory: Path, compilers: int) -> None:
        self.runner = LocalRunner(directory / "jobs", directory / "toolchain", workers=max(1, compilers))
        self.workloads = {n: spool(model, inputs, directory / n, name=n) for n, (model, inputs) in workloads().items()}
        self.references = {name: str(directory / name / "reference.pt") for name in self.workloads}
        for name, workload in self.workloads.items():
            reply = reply_to(
                self.runner,
                ProfileTask(workload, self.references[name], TIMING, 0),
                Limits(120.0),
                Profile,
                cache="profile",
            )
            if not isinstance(reply, Profile):
                sys.exit(f"{name}: {reply}")
        self._compiling: list[PendingReply | None] = [None] * compilers
        if compilers:
            self.runner.preload(next(iter(self.workloads.values())))

    def _keep_compiling(self) -> None:
        """Give every lane that is idle something to compile."""
        for lane, pending in enumerate(self._compiling):
            if pending is None or pending.is_done():
                names = [*self.workloads]
                task = CompileTask(self.workloads[names[lane % len(names)]], Plan(runtime="inductor"))
                self.runner.forget(f"lane{lane}")
                self._compiling[lane] = self.runner.submit(task, Limits(300.0), cache=f"lane{lane}", exclusive=False)

    def verdict(self, name: str, number: int) -> dict[str, object]:
        """Measure the baseline and its double once, with their processes interleaved."""
        measured: dict[str, list[Measurement]] = {"baseline": [], "search": []}
        for process in range(PROCESSES):
            for position, origin in enumerate(measured):
                task = TrialTask(
                    self.workloads[name],
                    Plan(),
                    self.references[name],
                    TIMING,
                    Acceptance(published_tolerance("")),
                    1000 * number + 10 * process + position,
                )
                self._keep_compiling()
                reply = reply_to(self.runner, task, Limits(120.0), Measurement, cache="trial")
                if not isinstance(reply, Measurement):
                    sys.exit(f"{name}: {reply}")
                measured[origin].append(reply)
        return {
            "model": name,
            "processes": {origin: [as_logs(m) for m in found] for origin, found in measured.items()},
            "noisy": sum(m.contamination.noisy for found in measured.values() for m in found),
            "baseline_ms": round(measured["baseline"][0].baseline.p50_ms, 4),
        }


def as_logs(process: Measurement) -> list[float]:
    """Return the log ratio of a process, its interval, and the log of eager's milliseconds, rounded as in results."""
    ratio = process.ratio
    return [round(math.log(x), 5) for x in (ratio.value, ratio.low, ratio.high, process.baseline.mean_ms)]


@contextmanager
def beside(*, busy: bool):
    """Run a process that keeps one core busy, if `busy`."""
    if not busy:
        yield
        return
    # The process ends on its own if this study is killed; otherwise the next study would run next to two of them.
    process = subprocess.Popen([sys.executable, "-c", f"import os\nwhile os.getppid() == {os.getpid()}: pass"])
    try:
        yield
    finally:
        process.kill()


def results_of(directory: Path = HERE / "results") -> Path:
    """Return the results file for this kind of machine; its first row describes the machine."""
    kind, device = by_processor(device_type()), device_type()
    gpu = {"gpu": kind} if device == "cuda" else {}
    return results_path(directory, kind, described("cpu", "cores", "cpu_features", "torch", **gpu))


def read_rows(path: Path) -> list[dict[str, object]]:
    """Return all recorded rows."""
    return [json.loads(line) for line in path.read_text().splitlines()]


if __name__ == "__main__":
    main()
