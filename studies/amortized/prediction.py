"""Compare predicted total times, `startup + N * latency`, with fresh processes that make N calls.

    python studies/amortized/prediction.py

For each model, eager and plain `torch.compile` are measured like trials, in three processes; this gives the prediction.
Then fresh interpreters run the plain-torch snippet for N calls. Their time counts from when torch is imported and the
model is built. Their compiler cache contains only what the toolchain check left in it, nothing of the model. Appends to
results/.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, median

from rows import append, done
from workloads import WORKLOADS, workload

from autocompile.core.job import Acceptance, Limits, ProfileTask, Timing, ToolchainTask, TrialTask
from autocompile.core.outcome import Measurement, Toolchain
from autocompile.core.plan import Plan
from autocompile.core.profile import Profile
from autocompile.core.tolerance import published_tolerance
from autocompile.runner.local import LocalRunner
from autocompile.runtime.inductor.kind import KIND as INDUCTOR
from autocompile.runtime.inductor.settings import compiled
from autocompile.runtime.snippet import snippet
from autocompile.search.errand import reply_to
from autocompile.workload.spool import spool

CALLS = (50, 500, 5_000)
PLANS = {"eager": Plan(), "inductor": compiled()}
PROCESSES, ACTUAL_RUNS = 3, 3
LONGEST_S = 120.0
_OF_PROGRAMS = shutil.ignore_patterns(*INDUCTOR.cached_for_programs)


def main() -> None:
    """Predict and check each model and plan that is not recorded yet."""
    if len(sys.argv) > 1:
        child(*sys.argv[1:])
        return
    for name in WORKLOADS:
        for label, plan in PLANS.items():
            if not done("prediction", model=name, plan=label):
                for row in check(name, plan):
                    append({"kind": "prediction", "model": name, "plan": label, **row})
                    print(name, label, row, flush=True)


def check(name: str, plan: Plan) -> list[dict[str, object]]:
    """Return a row for each number of calls."""
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        with LocalRunner(directory / "jobs", directory / "toolchain") as runner:
            startup_s, latency_s = predicted(runner, directory, name, plan)
        rows = []
        for calls in CALLS:
            expected = startup_s + calls * latency_s
            if expected < LONGEST_S:
                took = [actual_s(directory, name, plan, calls, run) for run in range(ACTUAL_RUNS)]
                rows.append(
                    {
                        "calls": calls,
                        "predicted_s": round(expected, 4),
                        "actual_s": [round(seconds, 4) for seconds in took],
                        "off": round(median(took) / expected - 1, 4),
                    }
                )
        return rows


def predicted(runner: LocalRunner, directory: Path, name: str, plan: Plan) -> tuple[float, float]:
    """Return start-up and latency in seconds, measured as in a run."""
    reply_to(runner, ToolchainTask("cpu"), Limits(120.0), Toolchain, cache="toolchain")
    work = spool(*workload(name), directory / "workload")
    reference, timing = str(directory / "reference.pt"), Timing(precision=0.02, limit_s=4.0)
    profile = reply_to(runner, ProfileTask(work, reference, timing, 0), Limits(300.0), Profile, cache="profile")
    if not isinstance(profile, Profile):
        sys.exit(f"{name}: {profile}")
    found = []
    for process in range(PROCESSES):
        task = TrialTask(work, plan, reference, timing, Acceptance(published_tolerance("")), process)
        reply = reply_to(runner, task, Limits(300.0), Measurement, cache=f"trial{process}")
        if not isinstance(reply, Measurement):
            sys.exit(f"{name}: {reply}")
        found.append(reply)
    baseline_ms = median(m.baseline.mean_ms for m in found)
    return median(m.startup.total_s for m in found), mean(m.ratio.value for m in found) * baseline_ms / 1e3


def actual_s(directory: Path, name: str, plan: Plan, calls: int, run: int) -> float:
    """Return the seconds that a fresh interpreter takes for `calls` calls."""
    cache = directory / f"cache-{calls}-{run}"
    shutil.copytree(directory / "toolchain" / INDUCTOR.name, cache, ignore=_OF_PROGRAMS)
    code = directory / "snippet.py"
    code.write_text(snippet(plan, device_type="cpu", is_module=True))
    done_ = subprocess.run(
        [sys.executable, __file__, name, str(code), str(calls)],
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(json.loads(done_.stdout.splitlines()[-1]))


def child(name: str, code: str, calls: str) -> None:
    """Build the model, then time the snippet and the calls."""
    model, inputs = workload(name)
    names = {"model": model}
    arguments = (inputs,) if not isinstance(inputs, dict) else ()
    keywords = inputs if isinstance(inputs, dict) else {}
    began = time.perf_counter()
    exec(Path(code).read_text(), names)
    run = names["run"]
    for _ in range(int(calls)):
        run(*arguments, **keywords)
    print(json.dumps(time.perf_counter() - began))


if __name__ == "__main__":
    main()
