"""Compare the training step that a search delivers with every way by hand, on six workloads (nine on a GPU).

    python studies/training/record.py               # about fifteen minutes a workload; run nothing else meanwhile
    python studies/training/record.py --only gpt --budget 2m --seconds 10
    python studies/training/table.py > studies/training/README.md

Each way by hand runs in a separate process (`one.py`) with an empty compiler cache, and is timed against eager in that
process. Then the workload is tuned (`ours.py`), and the recommendation is timed in the same way in three more
processes, also with empty caches. In turn with these, the fastest ways by hand are timed in two more processes each,
because the fastest of many single measurements is partly luck. On a machine without instructions for bfloat16, the ways
by hand in bfloat16 are skipped.

The first step's gradients of each way by hand are compared with float64 (`gradients.py`).

One row per workload is appended to results/, so an interrupted recording can be continued. If a way fails, the row has
its error. To record a workload again, delete its row. Rows without a comparison of the gradients get one.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from by_hand import has_bf16, ways
from workloads import chosen, device_type

from autocompile.core.serde import write_atomically
from autocompile.host import environment

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

from machine import by_instructions, results_path  # noqa: E402

AGAIN = 3
# Ways by hand within this share of the fastest one are timed again, too.
CLOSE = 0.05
_CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH")


def main() -> None:
    """Record what is not recorded yet."""
    device = device_type()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=chosen(device), nargs="*", default=chosen(device))
    parser.add_argument("--budget", default="5m")
    parser.add_argument("--seconds", type=float, default=20.0, help="the longest time for which each way is timed")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    path = results_of(arguments.results, device)
    complete(path, device, arguments.only)
    known = {json.loads(line).get("workload") for line in path.read_text().splitlines()}
    effort = Effort(arguments.budget, arguments.seconds)
    for name in (name for name in arguments.only if name not in known):
        row = {"workload": name, "budget": effort.budget, "seconds": effort.seconds, **recorded(name, device, effort)}
        with path.open("a") as stream:
            stream.write(json.dumps(row) + "\n")
        found = {**row["ways"], "ours": row["ours"][0]}
        print(name, {way: round(one["speedup"], 2) if "speedup" in one else one for way, one in found.items()})


@dataclass(frozen=True)
class Effort:
    """The `budget` of a search, as for `optimize`, and the most `seconds` for which each way is timed."""

    budget: str
    seconds: float


def recorded(name: str, device: str, effort: Effort) -> dict[str, Any]:
    """Time every way by hand, search, and time the recommendation in several processes."""
    seconds = str(effort.seconds)
    found = {way: process("one.py", name, way, "--seconds", seconds) for way in ways(device)}
    checked = gradients(name, device)
    with tempfile.TemporaryDirectory() as directory:
        rec = f"{directory}/rec"
        verdict = process("ours.py", name, effort.budget, rec)
        own = ["one.py", name, "ours", "--seconds", seconds, "--recommendation", rec]
        ours, again = [], {way: [] for way in fastest(found, checked)}
        for number in range(AGAIN):
            ours.append(verdict if "failed" in verdict else process(*own))
            for way in again if number else ():
                again[way].append(process("one.py", name, way, "--seconds", seconds))
    return {"ways": found, "again": again, "verdict": verdict, "ours": ours, "gradients": checked}


def gradients(name: str, device: str) -> dict[str, Any]:
    """Compare the gradients of every way by hand with float64."""
    return {way: process("gradients.py", name, way) for way in ways(device)}


def complete(path: Path, device: str, names: Collection[str]) -> None:
    """Compare the gradients for the rows of these workloads that were recorded without it."""
    lines = path.read_text().splitlines()
    for number, row in enumerate(map(json.loads, lines)):
        if row.get("workload") in names and "gradients" not in row:
            lines[number] = json.dumps({**row, "gradients": gradients(row["workload"], device)})
            write_atomically(path, "".join(f"{line}\n" for line in lines).encode())


def fastest(found: dict[str, Any], checked: dict[str, Any]) -> list[str]:
    """Return the fastest ways by hand that lose no gradient, without eager, which all ways are compared with."""
    lost = {"eager", *(way for way, one in checked.items() if one.get("lost"))}
    speedups = {way: one["speedup"] for way, one in found.items() if way not in lost and "speedup" in one}
    most = max(speedups.values(), default=0.0)
    return [way for way, speedup in speedups.items() if speedup >= (1 - CLOSE) * most]


def process(*arguments: str) -> dict[str, Any]:
    """Run a process with empty caches; return the JSON object that it printed last, or its error."""
    with tempfile.TemporaryDirectory() as cache:
        empty = {name: f"{cache}/{name.lower()}" for name in _CACHES}
        command = [sys.executable, str(HERE / arguments[0]), *arguments[1:]]
        done = subprocess.run(command, env={**os.environ, **empty}, capture_output=True, text=True, check=False)
    if done.returncode:
        words = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
        return {"failed": words[-1][:300]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def results_of(directory: Path, device: str) -> Path:
    """Return the results file for this kind of machine; its first line describes the machine."""
    here, kind = environment(), by_instructions(device)
    machine = {
        "device": device,
        "kind": kind,
        "torch": here.torch,
        "features": here.cpu_features,
        "bf16": has_bf16(device),
        "workloads": len(chosen(device)),
    }
    return results_path(directory, kind, machine)


if __name__ == "__main__":
    main()
