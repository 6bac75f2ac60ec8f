"""Print the README, from what was recorded: `python studies/scripts/table.py > studies/scripts/README.md`."""

import json
import math
import statistics
import sys
from pathlib import Path
from typing import Any

from scipy.stats import t

HERE = Path(__file__).parent
HEAD = """\
# Scripts: what tuning a script as it is brings, and what watching and running it cost

Made by `table.py` from `results/`, which `record.py` records and says how.

Each script of `examples/scripts` that trains is tuned as it is, for an hour of steps, and then run in turn by itself
and by `autocompile run`, in processes of their own. A step is from the end of one to the end of the next, loading
included, and its time the median over the run. Ratios are geometric means over the rounds with their 95% intervals.
What is said is said of the training step alone. A step of the script holds what else it does, too: drawing the waves
further, which takes 29% of `waves`, is no part of a training step and stays as it is.
"""
Row = dict[str, Any]


def main() -> None:
    """Print it."""
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "results"
    print(HEAD)
    for path in sorted(directory.glob("*.jsonl")):
        machine, *rows = [json.loads(line) for line in path.read_text().splitlines()]
        print(f"## {machine['kind']}, torch {machine['torch']}\n")
        gained([row for row in rows if "script" in row])
        costs([row for row in rows if "script" in row])
        hooks([row for row in rows if "overhead" in row])


def gained(rows: list[Row]) -> None:
    """What a step takes by itself and as recommended."""
    print("| script | recommended, searched for | a step, by itself | as recommended | faster | said of the step |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        plain, ours = middle(row, "plain", "step_ms"), middle(row, "recommended", "step_ms")
        said = "" if row["said"] is None else f"{row['said']:.2f}x"
        faster = ratio(row, "plain", "recommended", "step_ms")
        print(f"| {row['script']} | {row['label']}, {row['budget']} | {plain} | {ours} | {faster} | {said} |")
    print()


def costs(rows: list[Row]) -> None:
    """What `run` costs a step and a process where it changes nothing, and what watching costs."""
    print("`run` with a recommendation that changes nothing, and watching a whole run, beside the script by itself:\n")
    print("| script | a step under `run` | seconds more, under `run` | the whole, by itself | seconds more, watched |")
    print("|---|---|---|---|---|")
    for row in rows:
        step = ratio(row, "unchanged", "plain", "step_ms")
        more = difference(row, "unchanged", "plain")
        whole = statistics.median(one["plain"]["wall_s"] for one in row["rounds"])
        print(f"| {row['script']} | {step} | {more} | {whole:.1f} s | {difference(row, 'watched', 'plain')} |")
    print()


def hooks(rows: list[Row]) -> None:
    """What the hooks of `run` cost a step, by `overhead.py`."""
    if not rows:
        return
    print("The hooks of `run`, put in and taken out in turn in one process, around blocks of the same steps:\n")
    print("| steps of | a step, by itself | with the hooks | microseconds more | pairs |")
    print("|---|---|---|---|---|")
    for row in rows:
        by_itself = statistics.median(one["without"] for one in row["rounds"])
        logs = [math.log(one["with"] / one["without"]) for one in row["rounds"]]
        more = [1e3 * (one["with"] - one["without"]) for one in row["rounds"]]
        (low, high), (least, most) = interval(logs), interval(more)
        times = f"{math.exp(statistics.mean(logs)):.4f}x ({math.exp(low):.4f} to {math.exp(high):.4f})"
        added = f"{statistics.mean(more):+.1f} ({least:+.1f} to {most:+.1f})"
        print(f"| {row['overhead']} | {by_itself:.4g} ms | {times} | {added} | {len(more)} |")
    print()


def middle(row: Row, way: str, what: str) -> str:
    """The median over the rounds."""
    return f"{statistics.median(one[way][what] for one in row['rounds']):.1f} ms"


def ratio(row: Row, over: str, under: str, what: str) -> str:
    """The first over the second, in pairs."""
    logs = [math.log(one[over][what] / one[under][what]) for one in row["rounds"]]
    low, high = interval(logs)
    return f"{math.exp(statistics.mean(logs)):.3f}x ({math.exp(low):.3f} to {math.exp(high):.3f})"


def difference(row: Row, more: str, less: str) -> str:
    """By how many seconds the first takes longer, in pairs."""
    found = [one[more]["wall_s"] - one[less]["wall_s"] for one in row["rounds"]]
    low, high = interval(found)
    return f"{statistics.mean(found):+.2f} s ({low:+.2f} to {high:+.2f})"


def interval(values: list[float]) -> tuple[float, float]:
    """95%, by Student's t."""
    half = t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return statistics.mean(values) - half, statistics.mean(values) + half


if __name__ == "__main__":
    main()
