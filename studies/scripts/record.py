"""Measure the gain of tuning unmodified example scripts, and the cost of watching and running them.

    python studies/scripts/record.py                      # about five minutes a script; run nothing else meanwhile
    python studies/scripts/record.py --only images --budget 90s --rounds 3
    python studies/scripts/table.py > studies/scripts/README.md

Each script is tuned. Then it runs in rounds, each time in a separate process (`one.py`): unchanged; as recommended;
with a recommendation that changes nothing, which shows the cost of `autocompile run`; and watched to its end. One row
per script is appended to results/. To record a script again, delete its row.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

from machine import by_instructions, results_path  # noqa: E402

SCRIPTS = HERE.parent.parent / "examples" / "scripts"
# These arguments make each script run for some seconds, with at most a few hundred steps.
ARGUMENTS = {
    "images": ["--epochs", "6", "--samples", "1024"],
    "sequences": ["--steps", "120"],
    "trainer": ["--epochs", "2", "--samples", "1024"],
    "denoise": [],
    "gan": ["--steps", "300"],
    "waves": [],
    "fit": ["--steps", "40"],
    "classify": ["--samples", "32768"],
    "generate": ["--prompts", "24"],
}
WRITES = ("images", "trainer", "denoise", "classify")


def main() -> None:
    """Record what is not recorded yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=ARGUMENTS, nargs="*", default=list(ARGUMENTS))
    parser.add_argument("--budget", default="3m")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--results", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    path = results_in(arguments.results)
    known = {json.loads(line).get("script") for line in path.read_text().splitlines()}
    for name in (name for name in arguments.only if name not in known):
        with tempfile.TemporaryDirectory() as directory:
            row = {"script": name, "budget": arguments.budget, **recorded(name, arguments, Path(directory))}
        with path.open("a") as stream:
            stream.write(json.dumps(row) + "\n")
        print(name, row["label"], row["said"], json.dumps(row["rounds"])[:200], flush=True)


def results_in(directory: Path) -> Path:
    """Return the results file for this kind of machine."""
    kind = by_instructions()
    return results_path(directory, kind, {"kind": kind, "torch": str(torch.__version__)})


def recorded(name: str, arguments: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Tune the script; return the verdict and the measurements of all rounds."""
    tune = ["tune", str(SCRIPTS / f"{name}.py"), "--budget", arguments.budget, "--horizon", "1h", "--quiet"]
    tune += ["--output", str(directory / "rec"), "--", *own_arguments(name, directory / "tuned")]
    subprocess.run([sys.executable, "-m", "autocompile", *tune], cwd=directory, check=True, stdout=subprocess.DEVNULL)
    document = json.loads((directory / "rec" / "recommendation.json").read_text())
    rounds = []
    for number in range(arguments.rounds):
        found = {}
        for way in ("plain", "recommended", "unchanged", "watched"):
            work = directory / f"{way}{number}"
            work.mkdir()
            found[way] = one(way, directory / "rec", name, work)
        rounds.append(found)
    winner = document["winner"]
    return {"label": winner["label"], "said": (winner["speedup"] or {}).get("value"), "rounds": rounds}


def one(way: str, rec: Path, name: str, work: Path) -> dict[str, Any]:
    """Run the script once in a separate process; return its wall time and its step times."""
    out = work.with_name(f"{work.name}-steps")
    out.mkdir()
    command = [str(HERE / "one.py"), way, str(rec), str(out), str(SCRIPTS / f"{name}.py")]
    command += own_arguments(name, work / "made")
    began = time.perf_counter()
    done = subprocess.run([sys.executable, *command], cwd=work, capture_output=True, text=True, check=False)
    took = time.perf_counter() - began
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1][:300]}
    return {"wall_s": took, **json.loads((out / "steps.json").read_text())}


def own_arguments(name: str, output: Path) -> list[str]:
    """Return the arguments of the script."""
    return [*ARGUMENTS[name], *(["--output", str(output)] if name in WRITES else [])]


if __name__ == "__main__":
    main()
