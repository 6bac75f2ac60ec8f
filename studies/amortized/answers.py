"""Ask one study about many numbers of calls, and compare each answer with the best measured candidate.

    python studies/amortized/answers.py --budget 10m

Tunes MobileNetV2 and the stencil once each. For each number of calls, it compares the recommendation of
`autocompile show --calls N` with the lowest measured `startup + N * latency` of all trials. Appends to results/.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from rows import append, done
from workloads import workload

import autocompile
from autocompile.artifact.directory import read_document
from autocompile.core.document import TrialEntry
from autocompile.search.judge.standings import at_calls

MODELS = ("mobilenet", "stencil")
CALLS = (1, 10, 100, 1_000, 100_000)


def main() -> None:
    """Tune what is not recorded yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", default="10m")
    arguments = parser.parse_args()
    for name in MODELS:
        if not done("answers", model=name):
            with tempfile.TemporaryDirectory() as directory:
                for row in answers(name, arguments.budget, Path(directory) / "rec"):
                    append({"kind": "answers", "model": name, "budget": arguments.budget, **row})
                    print(row, flush=True)


def answers(name: str, budget: str, directory: Path) -> list[dict[str, Any]]:
    """Return a row for each number of calls."""
    autocompile.optimize(*workload(name), budget=budget, output=directory, progress=False)
    document = read_document(directory)
    measured = [entry for entry in document.trials if entry.status == "measured"]
    rows = []
    for calls in CALLS:
        winner = at_calls(document, calls).winner
        best = min(measured, key=lambda entry: total_s(entry, calls))
        behind = total_s(winner, calls) / total_s(best, calls) - 1
        rows.append(
            {
                "calls": calls,
                "winner": winner.label,
                "best": best.label,
                "behind": round(behind, 4),
                "total_s": round(total_s(winner, calls), 4),
                "candidates": len(measured),
            }
        )
    return rows


def total_s(entry: TrialEntry, calls: int) -> float:
    """Return the measured total seconds of a process with this number of calls."""
    return entry.startup_s + calls * entry.paired_ms.value / 1e3


if __name__ == "__main__":
    main()
