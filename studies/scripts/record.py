"""What tuning a script as it is brings, and what watching and running it cost, over the example scripts.

    python studies/scripts/record.py                      # some five minutes a script; run nothing else meanwhile
    python studies/scripts/record.py --only images --budget 90s --rounds 3
    python studies/scripts/table.py > studies/scripts/README.md

Each script is tuned, then runs in turn by itself and as recommended, in processes of their own (`one.py`); and in turn
by itself and with a recommendation that changes nothing, which shows what `autocompile run` costs. Last it runs to its
end in turn by itself and watched. A row for each script is appended to results/; to record it again, delete the row.
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
# How long each script runs: some seconds, a few hundred steps at most.
ARGUMENTS = {
    "images": ["--epochs", "6", "--samples", "1024"],
    "sequences": ["--steps", "120"],
    "trainer": ["--epochs", "2", "--samples", "1024"],
    "denoise": [],
    "gan": ["--steps", "300"],
    "waves": [],
}
WRITES = ("images", "trainer", "denoise")


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
    """The file of this kind of machine."""
    kind = by_instructions()
    return results_path(directory, kind, {"kind": kind, "torch": str(torch.__version__)})


def recorded(name: str, arguments: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Its verdict, and the rounds of each comparison."""
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
    """The script once, in a process of its own: its seconds from outside, and what it says of its steps."""
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
    """What the script is given."""
    return [*ARGUMENTS[name], *(["--output", str(output)] if name in WRITES else [])]


if __name__ == "__main__":
    main()
