"""Measure how fast text is generated with the recommendation and with optimizations by hand.

    python studies/generation/record.py                      # about eight minutes a model; run nothing else meanwhile
    python studies/generation/record.py --only gpt --budget 3m --rounds 4 --seconds 5
    python studies/generation/table.py > studies/generation/README.md

`model.generate` is tuned for an hour of decode steps, and for its prompts if they take at least 10% of the time. Then
the ways generate in turn, each in a separate process (`one.py`). One row per model is appended to results/. To record a
model again, delete its row.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from models import WORKLOADS, made
from one import WAYS

import autocompile

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

from machine import by_instructions, results_path  # noqa: E402


def main() -> None:
    """Record what is not recorded yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=WORKLOADS, nargs="*", default=list(WORKLOADS))
    parser.add_argument("--budget", default="4m")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--results", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    kind = by_instructions()
    path = results_path(arguments.results, kind, {"kind": kind, "torch": str(torch.__version__)})
    known = {json.loads(line).get("model") for line in path.read_text().splitlines()}
    for name in (name for name in arguments.only if name not in known):
        row = {"model": name, "budget": arguments.budget, **recorded(name, arguments)}
        with path.open("a") as stream:
            stream.write(json.dumps(row) + "\n")
        print(name, row["label"], row["said"], json.dumps(row["rounds"])[:300], flush=True)


def recorded(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the verdict and the measurements of all rounds."""
    work, model = WORKLOADS[name], made(name)
    inputs = [{"inputs": prompt, **work.asked} for prompt in work.prompts(3)]
    rec = autocompile.optimize(model.generate, inputs, budget=arguments.budget)
    winner, whole = rec.document.winner, rec.document.winner.generated
    said = {"step": rec.speedup.value, "whole": whole.speedup.value if whole and whole.speedup else None}
    prompts = rec.document.prompts
    if prompts is not None:
        own = prompts.generated.speedup if prompts.generated and prompts.generated.speedup else None
        said |= {
            "prompts": prompts.label,
            "left": prompts.left,
            "prompt": prompts.speedup.value if prompts.speedup else None,
            "whole": own.value if own else said["whole"],
        }
    with tempfile.TemporaryDirectory() as directory:
        rec.save(Path(directory) / "rec")
        rounds = []
        for number in range(arguments.rounds):
            ways = list(WAYS)[::-1] if number % 2 else list(WAYS)
            rounds.append({way: one(way, name, f"{directory}/rec", arguments.seconds) for way in ways})
    eager = [found["eager"].pop("tokens") for found in rounds]
    for found in rounds:
        for way in set(found) - {"eager"}:
            found[way]["same_tokens"] = found[way].pop("tokens", None) == eager[0]
    return {"label": winner.label, "start": rec.document.artifact.start, "said": said, "rounds": rounds}


def one(way: str, name: str, rec: str, seconds: float) -> dict[str, Any]:
    """Run one way in a separate process; return what it printed, or its error."""
    command = [sys.executable, str(HERE / "one.py"), way, name, rec, str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1][:300]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
