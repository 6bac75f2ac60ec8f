"""Coverage: simulate on recorded noise how often the 95% intervals cover the true value, and one more process.

    python studies/trust/coverage.py

The noise was recorded by aa.py: log ratios of processes that ran the same program twice, so the true value is 0. Each
simulated run draws a number of candidates, with a number of processes each, from the processes of one model. The
intervals come from the real code, `search.judge.scatter`. Nothing is timed, so the noise of each recorded machine is
simulated. The rows are written to results/.
"""

import json
import math
import random
from collections import defaultdict
from typing import Any

from aa import HERE, read_rows
from replay import trial_of

from autocompile.search.judge.scatter import ratio_of, ratio_of_one_more, scatter_of

RUNS = 4000
LAYOUTS = ((1, 3), (3, 3), (4, 2), (5, 5))  # candidates, processes each: similar to the strategies


def main() -> None:
    """Simulate the noise of each recorded machine."""
    for path in sorted((HERE / "results").glob("*.jsonl")):
        rows = read_rows(path)
        kept = [row for row in rows if row.get("kind") != "coverage"]
        found = simulated([row for row in rows if row.get("kind") == "aa"])
        path.write_text("".join(json.dumps(row) + "\n" for row in (*kept, *found)))


def simulated(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each condition and layout, with the models in turn."""
    found = []
    for condition in dict.fromkeys(row["condition"] for row in rows):
        pools: dict[str, list[list[float]]] = defaultdict(list)
        for row in rows:
            if row["condition"] == condition:
                pools[row["model"]].extend(row["processes"]["search"])
        for candidates, processes in LAYOUTS:
            share, of_one_more = coverage(list(pools.values()), candidates, processes)
            found.append(
                {
                    "kind": "coverage",
                    "condition": condition,
                    "candidates": candidates,
                    "processes": processes,
                    "intervals": RUNS * candidates,
                    "coverage": round(share, 4),
                    "coverage_of_one_more": round(of_one_more, 4),
                }
            )
            print(found[-1])
    return found


def coverage(pools: list[list[list[float]]], candidates: int, processes: int) -> tuple[float, float]:
    """Return the share of intervals that cover the true value, and of those for one process that cover one more.

    The true value is the mean of the pool of processes. The further process is drawn from the same pool.
    """
    drawn = random.Random(0)
    held = held_one_more = 0
    for run in range(RUNS):
        pool = pools[run % len(pools)]
        truth = sum(process[0] for process in pool) / len(pool)
        trials = [trial_of(n + 1, "", "search", 1, drawn.choices(pool, k=processes)) for n in range(candidates)]
        scatter = scatter_of(trials)
        for one in trials:
            interval, single = ratio_of(one, scatter), ratio_of_one_more(one, scatter)
            held += interval.low <= math.exp(truth) <= interval.high
            held_one_more += single.low <= math.exp(drawn.choice(pool)[0]) <= single.high
    return held / (RUNS * candidates), held_one_more / (RUNS * candidates)


if __name__ == "__main__":
    main()
