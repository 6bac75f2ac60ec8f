"""Measure what a short budget delivers: tune five models in 60 s and in 120 s, twice each, then load the results.

    python studies/delivery/record.py            # about 35 minutes; run nothing else meanwhile
    python studies/delivery/record.py --only stencil --budget 60
    python studies/delivery/table.py > studies/delivery/README.md

Each tuning run and each start is a separate process. Each start has an empty compiler cache, as on a new machine.
Runs are appended to results/, so an interrupted recording can be continued.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

from models import MODELS

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

from machine import by_processor, described, results_path  # noqa: E402

BUDGETS_S = (60, 120)
ROUNDS = 2


def main() -> None:
    """Record what is not recorded yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=MODELS, nargs="*", default=MODELS)
    parser.add_argument("--budget", type=int, choices=BUDGETS_S, nargs="*", default=BUDGETS_S)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    kind = by_processor().replace(" Processor", "")
    head = described("cpu", "cores", "cpu_features", "torch", "python")
    path = results_path(HERE / "results", kind, head)
    for number, budget_s, name in product(range(arguments.rounds), arguments.budget, arguments.only):
        row = {"kind": "delivery", "model": name, "budget_s": budget_s, "round": number}
        if not known(path, row):
            keep(path, {**row, **delivered(name, budget_s)})


def delivered(name: str, budget_s: int) -> dict[str, Any]:
    """Tune once, and start its result once."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = f"{scratch}/rec"
        tuned = child(["tune", name, str(budget_s), directory], {})
        started = child(["load", name, directory], {"TORCHINDUCTOR_CACHE_DIR": f"{scratch}/cache"})
    print(name, budget_s, tuned["headline"], {key: started[key] for key in ("served", "load_s", "first_call_s")})
    return {**tuned, **started}


def child(arguments: list[str], variables: dict[str, str]) -> dict[str, Any]:
    """Run `one.py` in a process and return the JSON object that it printed last."""
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


def known(path: Path, row: dict[str, Any]) -> bool:
    """Return whether this run is already recorded."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return any(all(one.get(key) == value for key, value in row.items()) for one in rows)


def keep(path: Path, row: dict[str, Any]) -> None:
    """Append a row."""
    with path.open("a") as stream:
        stream.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
