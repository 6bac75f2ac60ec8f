"""Threads: check that a runtime with its own threads has the same time next to eager as alone.

    python studies/trust/threads.py --processes 5         # about five minutes; run nothing else meanwhile

Torch's idle OpenMP threads keep spinning for a while and take cores from the threads of another library. Each model is
packed once for each runtime, and the loaded artifact is timed in new processes:

- alone: nothing else runs in the process
- paired: with the clock of trials, in blocks that alternate with eager's; each block begins when no thread spins
- unsettled: the same without this wait
- after torch: each call follows an operator of torch that uses all threads, as preprocessing in production may do

The milliseconds per call are appended to results/. `python studies/trust/table.py` generates the README's table from
them.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import torch
from aa import read_rows, results_of
from torch import nn

from autocompile.artifact.integrity import write_manifest
from autocompile.core.job import Acceptance, Limits, Packed, PackTask, ProfileTask, Timing
from autocompile.core.plan import Plan
from autocompile.core.profile import Profile
from autocompile.core.tolerance import published_tolerance
from autocompile.runner.local import LocalRunner
from autocompile.runtime.catalogue import serving_of
from autocompile.search.errand import reply_to
from autocompile.search.packages import manifest_of
from autocompile.trial.clock.timing import subject, time_pairs
from autocompile.trial.pack.loaded import LoadedArtifact
from autocompile.workload.call import Call
from autocompile.workload.samples import Sample
from autocompile.workload.spool import spool

RUNTIMES = ("openvino", "onnxruntime")
WAYS = ("alone", "paired", "unsettled", "after torch")
LASTS_S = 2.0


def models() -> dict[str, tuple[nn.Module, torch.Tensor]]:
    """Return model and input by name: about 1 ms and 10 ms per call in eager on a 2-core machine."""
    torch.manual_seed(0)
    layers = [nn.Linear(384, 1536), nn.GELU(), nn.Linear(1536, 384), nn.LayerNorm(384)]
    convolutions = [nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Conv2d(32, 8, 3)]
    return {
        "perceptron": (nn.Sequential(*layers).eval(), torch.randn(32, 384)),
        "convolutions": (nn.Sequential(*convolutions).eval(), torch.randn(2, 3, 112, 112)),
    }


def main() -> None:
    """Time what is not recorded yet, with all ways in turn; as a child process, time one way."""
    if len(sys.argv) > 1 and sys.argv[1] in WAYS:
        print(json.dumps(timed(*sys.argv[1:])))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=5)
    asked = parser.parse_args().processes
    path = results_of()
    done = max((int(str(row["number"])) + 1 for row in read_rows(path) if row["kind"] == "threads"), default=0)
    with tempfile.TemporaryDirectory() as temporary:
        artifacts = packed(Path(temporary))
        for number in range(done, asked):
            for (model, runtime), artifact in artifacts.items():
                found = {way: in_a_process(way, model, artifact) for way in WAYS}
                row = {"kind": "threads", "number": number, "model": model, "runtime": runtime, "ms": found}
                with path.open("a") as stream:
                    stream.write(json.dumps(row) + "\n")
                print(row, flush=True)


def packed(directory: Path) -> dict[tuple[str, str], str]:
    """Pack each model for each runtime; return the directories of the artifacts."""
    artifacts = {}
    acceptance, timing = Acceptance(published_tolerance("")), Timing(precision=0.02, limit_s=0.5)
    with LocalRunner(directory / "jobs", directory / "toolchain") as runner:
        for name, (model, inputs) in models().items():
            workload, reference = spool(model, inputs, directory / name), str(directory / name / "reference.pt")
            profile = reply_to(runner, ProfileTask(workload, reference, timing, 0), Limits(120.0), Profile, cache="p")
            if not isinstance(profile, Profile):
                sys.exit(f"{name}: {profile}")
            for runtime in RUNTIMES:
                plan, here = Plan(runtime=runtime), directory / f"{name}-{runtime}"
                serving = serving_of(plan)
                task = PackTask(workload, plan, serving, reference, acceptance, str(here / serving.name))
                found = reply_to(runner, task, Limits(120.0), Packed, cache="pack")
                if not isinstance(found, Packed):
                    sys.exit(f"{name}, {runtime}: {found}")
                write_manifest(here, manifest_of(workload, plan, serving, found, here))
                artifacts[name, runtime] = str(here)
    return artifacts


def in_a_process(way: str, model: str, artifact: str) -> float:
    """Return the milliseconds per call in a fresh process."""
    command = [sys.executable, __file__, way, model, artifact]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


def timed(way: str, name: str, artifact: str) -> float:
    """Return the milliseconds per call in this process."""
    model, inputs = models()[name]
    loaded, sample = LoadedArtifact(artifact, model, threads=0), Sample((inputs,), {})
    with torch.no_grad():
        for _ in range(5):
            loaded.run(sample)
        if way in ("paired", "unsettled"):
            return beside_eager(Call(model, device_type="cpu"), loaded, sample, settles=way == "paired")
        return by_itself(loaded, sample, after_torch=way == "after torch")


def beside_eager(eager: Call, loaded: Call, sample: Sample, *, settles: bool) -> float:
    """Time with the clock of trials, paired with eager."""
    threads = torch.get_num_threads()
    sides = [subject(step, [sample], "cpu", threads, settles=settles) for step in (eager, loaded)]
    return time_pairs(*sides, Timing(precision=0.0, limit_s=2 * LASTS_S), seed=0).candidate.mean_ms


def by_itself(loaded: Call, sample: Sample, *, after_torch: bool) -> float:
    """Return the median time of single calls; the operator before each call is not counted."""
    matrix, seconds = torch.randn(384, 384), []
    until = time.perf_counter() + LASTS_S
    while time.perf_counter() < until:
        if after_torch:
            matrix @ matrix
        began = time.perf_counter()
        loaded.run(sample)
        seconds.append(time.perf_counter() - began)
    return median(seconds) * 1e3


if __name__ == "__main__":
    main()
