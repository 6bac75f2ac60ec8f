"""Print the README, from what was recorded: `python studies/trust/table.py > studies/trust/README.md`."""

import json
import math
from pathlib import Path
from statistics import mean, median
from typing import Any

from replay import CHANGES, claims, judged

HERE = Path(__file__).parent
CONDITIONS = ("quiet", "busy")
Row = dict[str, Any]


def main() -> None:
    """Print it."""
    print("# Trust: is noise ever called a win?\n")
    print("Made by `table.py` from `results/`: processes recorded by `aa.py` and `agreement.py`, which say how, judged")
    print("by `autocompile.search.judge` as it is now; coverage simulated by `coverage.py`; runtimes with threads of")
    print("their own timed by `threads.py`.\n")
    for path in sorted((HERE / "results").glob("*.jsonl")):
        machine, *rows = [json.loads(line) for line in path.read_text().splitlines()]
        where = machine.get("gpu", f"{machine['cpu']}, {machine['cores']} cores")
        print(f"## {where}, torch {machine['torch']}\n")
        identical([row for row in rows if row["kind"] == "aa"])
        agreement([row for row in rows if row["kind"] == "agreement"])
        planted([row for row in rows if row["kind"] == "planted"])
        coverage([row for row in rows if row["kind"] == "coverage"])
        threads([row for row in rows if row["kind"] == "threads"])


def identical(rows: list[Row]) -> None:
    """A/A: a verdict that prefers one of two identical programs is a false win.

    Judged as if noise had not been noticed, since the product calls nothing faster on a noisy host.
    """
    if not rows:
        return
    print("### Verdicts between identical programs\n")
    print("Judged as if the noise had not been noticed; the product calls nothing faster on a noisy host.\n")
    print("| host | model | one call | verdicts | false wins | false losses | median interval | noise reported |")
    print("|---|---|---|---|---|---|---|---|")
    for condition in CONDITIONS:
        of_it = [row for row in rows if row["condition"] == condition]
        for model in dict.fromkeys(row["model"] for row in of_it):
            seen = [row for row in of_it if row["model"] == model]
            verdicts = [judged(row["processes"], CHANGES) for row in seen]
            wins = sum(verdict.winner.label != "baseline" for verdict in verdicts)
            losses = sum("search" in claims(verdict) for verdict in verdicts)
            others = [next(c for c in verdict.ranking if c.label == "search") for verdict in verdicts]
            width = median(other.ratio.relative_halfwidth for other in others)
            call = median(row["baseline_ms"] for row in seen)
            noisy = sum(row["noisy"] > 0 for row in seen)
            cells = (condition, model, f"{call:.3g} ms", len(seen), wins, losses, f"±{width:.1%}", noisy)
            print(f"| {' | '.join(map(str, cells))} |")
    print()


def agreement(rows: list[Row]) -> None:
    """The same finalists judged again: the winner, how far it truly is from the best, and wrong claims."""
    quiet = [row for row in rows if row["condition"] == "quiet"]
    if not quiet:
        return
    truth = {label: mean(log[0] for row in quiet for log in row["processes"][label]) for label in quiet[0]["processes"]}
    truth["baseline"] = 0.0
    print("### The same finalists, judged again and again\n")
    print(f"Truly, over baseline: {', '.join(f'{label} {math.exp(log):.3f}' for label, log in truth.items())}.\n")
    print("| host | verdicts | winners | winner within 2% of the best | wrong claims of faster | noise reported |")
    print("|---|---|---|---|---|---|")
    for condition in CONDITIONS:
        seen = [row for row in rows if row["condition"] == condition]
        if not seen:
            continue
        verdicts = [judged(row["processes"], CHANGES, noisy=mostly_noisy(row)) for row in seen]
        winners = [verdict.winner.label for verdict in verdicts]
        near = sum(truth[winner] - min(truth.values()) <= math.log(1.02) for winner in winners)
        wrong = sum(truth[v.winner.label] > truth[other] for v in verdicts for other in claims(v))
        counted = ", ".join(f"{label} {winners.count(label)}" for label in dict.fromkeys(winners))
        noisy = sum(row["noisy"] > 0 for row in seen)
        print(f"| {condition} | {len(seen)} | {counted} | {near} | {wrong} | {noisy} |")
    print()


def mostly_noisy(row: Row) -> bool:
    """Whether the product said so of most of the processes."""
    return 2 * int(row["noisy"]) > sum(len(found) for found in row["processes"].values())


def planted(rows: list[Row]) -> None:
    """Planted faults caught, and right candidates called wrong."""
    if not rows:
        return
    print("### Planted faults and right candidates\n")
    print("| candidate | models | called wrong | as it should |")
    print("|---|---|---|---|")
    for candidate in dict.fromkeys(row["candidate"] for row in rows):
        seen = [row for row in rows if row["candidate"] == candidate]
        caught = sum(bool(row["said"]) for row in seen)
        right = all(bool(row["said"]) == row["wrong"] for row in seen)
        print(f"| {candidate} | {len(seen)} | {caught} | {'yes' if right else 'NO'} |")
    print()


def coverage(rows: list[Row]) -> None:
    """How often nominal 95% intervals hold the truth."""
    if not rows:
        return
    print("### Coverage of the 95% intervals, simulated on the recorded noise\n")
    print("| noise | candidates | processes each | intervals | hold the truth |")
    print("|---|---|---|---|---|")
    for row in rows:
        cells = (row["condition"], row["candidates"], row["processes"], row["intervals"], f"{row['coverage']:.1%}")
        print(f"| {' | '.join(map(str, cells))} |")
    print()


def threads(rows: list[Row]) -> None:
    """What a runtime with threads of its own reads beside eager, over what it reads alone."""
    if not rows:
        return
    ways = [way for way in rows[0]["ms"] if way != "alone"]
    print("### Runtimes with threads of their own, beside torch's\n")
    print("Time a call over what the runtime takes alone, the median and the range over processes: as trials pair it")
    print("with eager, the same without waiting for threads that spin, and right after an operator of torch.")
    print("Recorded when trials waited for 12 ms before each block; they now wait until nothing spins.\n")
    print(f"| runtime | model | processes | alone | {' | '.join(ways)} |")
    print("|---|---|---|---|" + "---|" * len(ways))
    for runtime, model in dict.fromkeys((row["runtime"], row["model"]) for row in rows):
        seen = [row["ms"] for row in rows if (row["runtime"], row["model"]) == (runtime, model)]
        alone = median(ms["alone"] for ms in seen)
        ratios = [sorted(ms[way] / alone for ms in seen) for way in ways]
        cells = [f"{median(found):.2f} ({found[0]:.2f} to {found[-1]:.2f})" for found in ratios]
        print(f"| {runtime} | {model} | {len(seen)} | {alone:.3g} ms | {' | '.join(cells)} |")
    print()


if __name__ == "__main__":
    main()
