"""What a short budget delivers: five models, tuned in 60 s and in 120 s, twice each, and started as production does.

    python studies/delivery/record.py            # some 35 minutes; run nothing else meanwhile
    python studies/delivery/record.py --only stencil --budget 60
    python studies/delivery/table.py > studies/delivery/README.md

Every run and every start has a process of its own, and every start an empty compiler cache, as a new machine has.
Runs are appended to results/, so that a recording that was ended goes on.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

from models import MODELS

from autocompile.host import environment

HERE = Path(__file__).parent
BUDGETS_S = (60, 120)
ROUNDS = 2


def main() -> None:
    """Record what is not recorded yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=MODELS, nargs="*", default=MODELS)
    parser.add_argument("--budget", type=int, choices=BUDGETS_S, nargs="*", default=BUDGETS_S)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    path = results_path()
    for number, budget_s, name in product(range(arguments.rounds), arguments.budget, arguments.only):
        row = {"kind": "delivery", "model": name, "budget_s": budget_s, "round": number}
        if not known(path, row):
            keep(path, {**row, **delivered(name, budget_s)})


def delivered(name: str, budget_s: int) -> dict[str, Any]:
    """One run, and one start of what it left."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = f"{scratch}/rec"
        tuned = child(["tune", name, str(budget_s), directory], {})
        started = child(["load", name, directory], {"TORCHINDUCTOR_CACHE_DIR": f"{scratch}/cache"})
    print(name, budget_s, tuned["headline"], {key: started[key] for key in ("served", "load_s", "first_call_s")})
    return {**tuned, **started}


def child(arguments: list[str], variables: dict[str, str]) -> dict[str, Any]:
    """What a process of `one.py` printed last."""
    done = subprocess.run(
        [sys.executable, str(HERE / "one.py"), *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{arguments}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def results_path() -> Path:
    """One file for each kind of machine and version of torch; its first row describes the machine."""
    machine = environment()
    device = machine.gpus[0].name if machine.gpus else f"{machine.cpu} {machine.cores} cores"
    name = re.sub(r"[^a-z0-9]+", "-", re.sub(r"\(\w+\)| processor", "", device.lower())).strip("-")
    path = HERE / "results" / f"{name}-torch{machine.torch.split('+')[0]}.jsonl"
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        fields = ("cpu", "cores", "cpu_features", "torch", "python")
        keep(path, {"kind": "machine", **{name: getattr(machine, name) for name in fields}})
    return path


def known(path: Path, row: dict[str, Any]) -> bool:
    """Whether this run was recorded before."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return any(all(one.get(key) == value for key, value in row.items()) for one in rows)


def keep(path: Path, row: dict[str, Any]) -> None:
    """Append a row."""
    with path.open("a") as stream:
        stream.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
