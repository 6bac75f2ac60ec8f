"""Tune a workload with autocompile; this is the only module of the study that calls it.

    python studies/training/ours.py NAME BUDGET DIRECTORY    # tunes; prints JSON

The recommendation is saved in DIRECTORY. In another process, `prepared` returns a loop that uses it.
"""

import json
import sys
import time
from typing import Any

from by_hand import Loop
from workloads import Workload, device_type, workload

import autocompile


def main() -> None:
    """Tune one workload."""
    name, budget, directory = sys.argv[1:]
    print(json.dumps(tuned(workload(name, device_type()), budget, directory)))


def tuned(work: Workload, budget: str, directory: str) -> dict[str, Any]:
    """Tune; return the winner, its reported speed-up, and how long the search took."""
    training = autocompile.Training(loss=work.loss, optimizer=work.optimizer, clip_norm=work.clip_norm)
    began = time.perf_counter()
    rec = autocompile.optimize(
        work.model, list(work.batches), budget=budget, training=training, output=directory, seed=0, progress=False
    )
    took_s = time.perf_counter() - began
    said = rec.speedup
    return {
        "winner": rec.document.winner.label,
        "said": {"speedup": said.value, "low": said.low, "high": said.high},
        "took_s": round(took_s, 1),
    }


def prepared(directory: str, work: Workload) -> Loop:
    """Return the loop that a user of the recommendation would write."""
    optimizer = work.optimizer(work.model.parameters())
    return Loop(work.model, autocompile.prepare(directory, work.model, optimizer, loss=work.loss))


if __name__ == "__main__":
    main()
