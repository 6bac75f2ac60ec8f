"""Coverage: simulate on recorded noise how often the 95% intervals cover the true value.

    python studies/trust/coverage.py

The noise was recorded by aa.py: log ratios of processes that ran the same program twice, so the true value is 0. Each
simulated run draws a number of candidates, with a number of processes each, from the processes of one model. The
intervals come from the real code, `search.judge.scatter`. Nothing is timed. The result is appended to results/.
"""

import json
import math
import random
from collections import defaultdict

from aa import read_rows, results_of
from replay import trial_of

from autocompile.search.judge.scatter import ratio_of, scatter_of

RUNS = 4000
LAYOUTS = ((1, 3), (3, 3), (4, 2), (5, 5))  # candidates, processes each: similar to the strategies


def main() -> None:
    """Simulate each condition and layout, with the models in turn."""
    path = results_of()
    rows = [row for row in read_rows(path) if row["kind"] == "aa"]
    kept = [row for row in read_rows(path) if row["kind"] != "coverage"]
    found = []
    for condition in dict.fromkeys(row["condition"] for row in rows):
        pools: dict[str, list[list[float]]] = defaultdict(list)
        for row in rows:
            if row["condition"] == condition:
                pools[row["model"]].extend(row["processes"]["search"])
        for candidates, processes in LAYOUTS:
            share = coverage(list(pools.values()), candidates, processes)
            found.append(
                {
                    "kind": "coverage",
                    "condition": condition,
                    "candidates": candidates,
                    "processes": processes,
                    "intervals": RUNS * candidates,
                    "coverage": round(share, 4),
                }
            )
            print(found[-1])
    path.write_text("".join(json.dumps(row) + "\n" for row in (*kept, *found)))


def coverage(pools: list[list[list[float]]], candidates: int, processes: int) -> float:
    """Return the share of intervals that cover the true value, which is the mean of the pool of their processes."""
    drawn = random.Random(0)
    held = 0
    for run in range(RUNS):
        pool = pools[run % len(pools)]
        truth = sum(log for log, _low, _high in pool) / len(pool)
        trials = [trial_of(n + 1, "", "search", 1, drawn.choices(pool, k=processes)) for n in range(candidates)]
        scatter = scatter_of(trials)
        for one in trials:
            interval = ratio_of(one, scatter)
            held += interval.low <= math.exp(truth) <= interval.high
    return held / (RUNS * candidates)


if __name__ == "__main__":
    main()
