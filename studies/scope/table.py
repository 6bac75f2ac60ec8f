"""Print the README, from what was recorded: `python studies/scope/table.py > studies/scope/README.md`."""

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
Row = dict[str, Any]


def main() -> None:
    """Print it."""
    print("# What is compiled, and for which shapes\n")
    print("Made by `table.py` from `results/`, which `record.py` records and explains.\n")
    for path in sorted((HERE / "results").glob("*.jsonl")):
        machine, *rows = [json.loads(line) for line in path.read_text().splitlines()]
        print(f"## {machine['cpu']}, {machine['cores']} cores, torch {machine['torch']}\n")
        stacks = {row["stack"]: None for row in rows if row["kind"] == "blocks"}
        for stack in stacks:
            blocks(stack, [row for row in rows if row.get("stack") == stack])
        lengths([row for row in rows if row["kind"] == "lengths"])


def blocks(stack: str, rows: list[Row]) -> None:
    """Whole against regional."""
    print(f"### 24 equal blocks: {stack}\n")
    candidates([row for row in rows if row["label"] != "envelope"])
    found = {row["label"]: row for row in rows}
    whole, regional = found.get("inductor"), found.get("inductor scope=blocks")
    if whole and regional and not any("failure" in row for row in (whole, regional)):
        faster, slower = whole["compile_s"] / regional["compile_s"], regional["call_ms"] / whole["call_ms"] - 1
        print(f"\nBlocks compile {faster:.1f} times faster than the whole; a call takes {slower:+.1%}.")
    for label, calls, low, high in found.get("envelope", {}).get("segments", ()):
        interval = f" ({low:,} to {f'{high:,}' if high else 'never'})" if calls > 1 else ""
        print(f"\n- from {calls:,} calls{interval}: {label}", end="")
    print("\n")


def lengths(rows: list[Row]) -> None:
    """Sentences of 40 lengths."""
    if not rows:
        return
    print("### MiniLM, 40 sentences of different lengths\n")
    candidates(rows)
    winner = next(row for row in rows if row.get("winner"))
    plain = next((row for row in rows if row.get("origin") == "plain"), None)
    eager = next(row for row in rows if row.get("origin") == "baseline")
    print(f"\nRecommended: {winner['label']}, {eager['call_ms'] / winner['call_ms']:.2f}x eager", end="")
    print(f", {plain['call_ms'] / winner['call_ms']:.2f}x plain torch.compile, per call.\n" if plain else ".\n")


def candidates(rows: list[Row]) -> None:
    """A line each, and one for each that failed."""
    print(
        "| candidate | call | speed, eager 1 (95%) | start-up | of it compiling | graphs | unseen sizes | processes |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for row in (row for row in rows if "failure" not in row):
        value, low, high = row["speedup"]
        tried, again = row["unseen"]
        unseen = f"{again} of {tried} compiled again" if tried else "none tried"
        times = f"{row['startup_s']:.3g} s | {row['compile_s']:.3g} s"
        figures = f"{row['call_ms']:.4g} ms | {value:.3f} ({low:.3f} to {high:.3f}) | {times}"
        print(f"| {row['label']} | {figures} | {row['graphs']} | {unseen} | {row['processes']} |")
    for row in (row for row in rows if "failure" in row):
        print(f"\n{row['label']} failed: {row['failure']}")


if __name__ == "__main__":
    main()
