"""Print the README, from what was recorded: `python studies/delivery/table.py > studies/delivery/README.md`."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
Row = dict[str, Any]
# A run may take so much more than its budget.
MORE, MORE_S = 1.05, 5.0
NOT_PACKED = ("eager", "inductor at the first call")


def main() -> None:
    """Print it."""
    print("# Delivery: what a budget of one or two minutes leaves for production\n")
    print("Made by `table.py` from `results/`, which `record.py` records and says how.\n")
    for path in sorted((HERE / "results").glob("*.jsonl")):
        machine, *rows = [json.loads(line) for line in path.read_text().splitlines()]
        print(f"## {machine['cpu']}, {machine['cores']} cores, torch {machine['torch']}\n")
        for budget_s in sorted({row["budget_s"] for row in rows}):
            delivered(budget_s, [row for row in rows if row["budget_s"] == budget_s])


def delivered(budget_s: int, rows: list[Row]) -> None:
    """The runs of one budget, and the headline of each that packed no program."""
    print(f"### {budget_s} s\n")
    print("| model | took | winner | speed-up | served by | timed as loaded | speed-up as loaded | load + first call |")
    print("|---|---|---|---|---|---|---|---|")
    for row in sorted(rows, key=lambda row: (row["model"], row["round"])):
        packed = "" if row["packed_speedup"] is None else f"{row['packed_speedup']:.2f}x"
        timed = f"{row['timed']} times" if row["timed"] else ("" if row["packed"] in NOT_PACKED else "no")
        served = row["served"] if row["served"] == row["packed"] else f"{row['packed']}, SERVED {row['served']}"
        start = f"{row['load_s'] + row['first_call_s']:.3g} s"
        figures = f"{row['took_s']:.1f} s | {row['winner']} | {row['speedup']:.2f}x"
        print(f"| {row['model']} | {figures} | {served} | {timed} | {packed} | {start} |")
    servings = Counter(row["packed"] for row in rows)
    over = sum(row["took_s"] > MORE * budget_s + MORE_S for row in rows)
    print(
        f"\n{len(rows)} runs: {', '.join(f'{count} {serving}' for serving, count in servings.most_common())}; ", end=""
    )
    print(f"{over} took more than {MORE - 1:.0%} and {MORE_S:g} s over the budget.\n")
    for row in rows:
        if row["packed"] != "aot" or not row["timed"]:
            print(f"- {row['model']}: {row['headline']}")
            for said in row["warnings"]:
                print(f"  - `load` warns: {said}")
    print()


if __name__ == "__main__":
    main()
