"""Print the README, from what was recorded: `python studies/amortized/table.py > studies/amortized/README.md`."""

import json
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
Row = dict[str, Any]


def main() -> None:
    """Print it."""
    print("# Amortized time: does one study answer for every number of calls, and do its predictions come true?\n")
    print("Made by `table.py` from `results/`, which `answers.py`, `prediction.py` and `budgets.py` record.\n")
    for path in sorted((HERE / "results").glob("*.jsonl")):
        machine, *rows = [json.loads(line) for line in path.read_text().splitlines()]
        print(f"## {machine['cpu']}, {machine['cores']} cores, torch {machine['torch']}\n")
        answers([row for row in rows if row["kind"] == "answers"])
        predictions([row for row in rows if row["kind"] == "prediction"])
        budgets([row for row in rows if row["kind"] == "budgets"])


def answers(rows: list[Row]) -> None:
    """The recommendation for N calls against the lowest measured total of N calls."""
    if not rows:
        return
    print("### One study, asked for many numbers of calls\n")
    print("| model | calls | recommended | lowest measured | behind it | total |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        figures = f"{row['behind']:.1%} | {row['total_s']:.3g} s"
        print(f"| {row['model']} | {row['calls']:,} | {row['winner']} | {row['best']} | {figures} |")
    print()


def predictions(rows: list[Row]) -> None:
    """Predicted against actual totals of fresh processes."""
    if not rows:
        return
    print("### The total time of a fresh process, predicted and actual\n")
    print("| model | plan | calls | predicted | actual (median of 3) | off |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        figures = f"{row['predicted_s']:.3g} s | {median(row['actual_s']):.3g} s | {row['off']:+.1%}"
        print(f"| {row['model']} | {row['plan']} | {row['calls']:,} | {figures} |")
    for calls in dict.fromkeys(row["calls"] for row in rows):
        off = median(abs(row["off"]) for row in rows if row["calls"] == calls)
        print(f"\nMedian of how far off, {calls:,} calls: {off:.1%}")
    print()


def budgets(rows: list[Row]) -> None:
    """Budgets, and how long runs really took."""
    if not rows:
        return
    print("### Budgets kept\n")
    print("| model | budget | took | more than 5% and 5 s over |")
    print("|---|---|---|---|")
    for row in rows:
        over = row["took_s"] > 1.05 * row["budget_s"] + 5
        print(f"| {row['model']} | {row['budget_s']:g} s | {row['took_s']:.1f} s | {'YES' if over else 'no'} |")
    print()


if __name__ == "__main__":
    main()
