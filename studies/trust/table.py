"""The README of this study, made of what was recorded: `python studies/trust/table.py > studies/trust/README.md`."""

import json
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent


def main() -> None:
    """Print it."""
    print("# Trust: is noise ever called a win?\n")
    print("Made by `table.py` from `results/`; recorded by `aa.py`, which says how.\n")
    for path in sorted((HERE / "results").glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        machine = rows[0]
        print(f"## {machine['cpu']}, {machine['cores']} cores, torch {machine['torch']}\n")
        print("| host | verdicts between identical programs | false wins | median interval | noise reported |")
        print("|---|---|---|---|---|")
        for condition in ("quiet", "busy"):
            seen = [row for row in rows[1:] if row["kind"] == "aa" and row["condition"] == condition]
            if seen:
                wins = sum(row["false_win"] for row in seen)
                width = median(row["halfwidth"] for row in seen)
                noisy = sum(row["noisy"] > 0 for row in seen)
                print(f"| {condition} | {len(seen)} | {wins} | ±{width:.1%} | {noisy} of {len(seen)} |")
        print()


if __name__ == "__main__":
    main()
