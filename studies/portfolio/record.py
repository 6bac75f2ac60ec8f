"""Compare what a search of five minutes delivers with every way by hand, on thirteen workloads.

    python studies/portfolio/record.py               # about ten minutes a workload; run nothing else meanwhile
    python studies/portfolio/record.py --only bert --budget 2m
    python studies/portfolio/table.py > studies/portfolio/README.md

Each workload is tuned in a separate process. What `load` serves is then timed in one process with all ways by hand,
interleaved (`one.py`), and in three more processes with eager and the best way by hand only. On a CPU, the memory of
the served model is measured, in one process and in each of four (`shared.py`), and how long three processes take to
start (`start.py`).
On a processor without instructions for bfloat16, the ways in bfloat16 are skipped. On a machine with a GPU, everything
runs on the GPU, with the ways for GPUs. Rows are appended to results/, so an interrupted recording can be continued.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from right import OURS, best_by_hand, limit_on
from shared import shares
from start import starts
from workloads import chosen, device_type

from autocompile.host import environment
from autocompile.runtime.catalogue import kinds

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

from machine import by_instructions, results_path  # noqa: E402

AGAIN, TOGETHER = 3, 4
TUNE = """
import sys
from workloads import workload
import autocompile
model, inputs = workload(sys.argv[1])
autocompile.optimize(model, inputs, budget=sys.argv[2], output=sys.argv[3], seed=0, progress=False)
"""


def main() -> None:
    """Record what is not recorded yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=chosen(), nargs="*", default=chosen())
    parser.add_argument("--budget", default="5m")
    parser.add_argument(
        "--again", type=int, default=AGAIN, help="number of further processes in which the served model is timed"
    )
    parser.add_argument("--results", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    path = results_of(arguments.results, device_type())
    known = {json.loads(line).get("workload") for line in path.read_text().splitlines()}
    for name in arguments.only:
        if name not in known:
            row = {"workload": name, "budget": arguments.budget, **recorded(name, arguments.budget, arguments.again)}
            with path.open("a") as stream:
                stream.write(json.dumps(row) + "\n")
            print(
                name, row["winner"], {way: round(found["speedup"], 2) for way, found in row["ways"].items()}, flush=True
            )


def recorded(name: str, budget: str, more: int) -> dict[str, Any]:
    """Tune; return the verdict, the timed ways, and the speed-ups of the served model in further processes."""
    with tempfile.TemporaryDirectory() as directory:
        rec = f"{directory}/rec"
        began = time.perf_counter()
        python(["-c", TUNE, name, budget, rec])
        took_s = time.perf_counter() - began
        document = json.loads((Path(rec) / "recommendation.json").read_text())
        beside = json.loads(python([str(HERE / "one.py"), name, rec]))
        best = best_by_hand({**beside, "winner": document["winner"]["label"], "limit": limit_on(device_type())})
        few = dict.fromkeys(("eager", best))
        again = [json.loads(python([str(HERE / "one.py"), name, rec, *few]))["ways"] for _ in range(more)]
        memory = memory_of(rec, name) if device_type() == "cpu" else {}
        began_in = starts(rec, name)
    winner = document["winner"]
    return {
        "took_s": round(took_s, 1),
        "winner": winner["label"],
        "verdict": winner["speedup"],
        "one_process": winner["speedup_of_one_process"],
        "startup_s": winner["startup_s"],
        "starts": began_in,
        "packed_mb": round(document["artifact"]["size_bytes"] / 2**20, 1),
        **memory,
        "again": [ways[OURS]["speedup"] for ways in again],
        "relative": [ways[OURS]["speedup"] / ways[best]["speedup"] for ways in again if best in ways],
        **beside,
    }


def memory_of(rec: str, name: str) -> dict[str, list[float]]:
    """Return the memory of the served model in MiB, in one process and in each of several."""
    return {"alone_mb": shares(rec, name, 1), "together_mb": shares(rec, name, TOGETHER)}


def python(arguments: list[str]) -> str:
    """Return the last line that a process printed. Raises RuntimeError with the end of its stderr if it failed."""
    done = subprocess.run([sys.executable, *arguments], cwd=HERE, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{arguments[0]} failed: {done.stderr[-2000:]}")
    lines = done.stdout.strip().splitlines()
    return lines[-1] if lines else ""


def results_of(directory: Path, device: str) -> Path:
    """Return the results file for this kind of machine; its first line describes the machine."""
    here, name = environment(), by_instructions(device)
    machine = {
        "cpu": here.cpu,
        "cores": here.cores,
        "torch": here.torch,
        "features": here.cpu_features,
        **({"gpu": name, "driver": here.driver} if device == "cuda" else {}),
        **{kind.name: kind.version() for kind in kinds() if kind.version()},
    }
    return results_path(directory, name, machine)


if __name__ == "__main__":
    main()
