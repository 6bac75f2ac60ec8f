"""Print the README, from what was recorded: `python studies/startup/table.py > studies/startup/README.md`."""

import json
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent


def main() -> None:
    """Print it."""
    print("# Start-up: from the start of a process to its first right result\n")
    print("Made by `table.py` from `results/`; recorded by `record.py` and `overhead.py`, which say how.\n")
    for path in sorted((HERE / "results").glob("*.jsonl")):
        machine, *rows = [json.loads(line) for line in path.read_text().splitlines()]
        device = machine.get("device", "")
        where = device if device and not device.endswith("-cpu") else f"{machine['cpu']}, {machine['cores']} cores"
        print(f"## {where}, torch {machine['torch']}\n")
        for name in dict.fromkeys(row["model"] for row in rows if row["kind"] == "start"):
            starts(name, [row for row in rows if row["kind"] == "start" and row["model"] == name])
        overheads([row for row in rows if row["kind"] == "overhead"])


def starts(name: str, rows: list[dict]) -> None:
    """One model's ways, medians over the rounds; the figure that counts is load and first call."""
    print(f"### {name}\n")
    print("| way | import torch | model | load | first call | load + first call | of it | steady call | right |")
    print("|---|---|---|---|---|---|---|---|---|")
    fresh = beyond([row for row in rows if row["way"] == "torch.compile, fresh"])
    for way in dict.fromkeys(row["way"] for row in rows):
        mine = [row for row in rows if row["way"] == way]
        cells = [f"{median(r[key] for r in mine):.3g} s" for key in ("import_s", "model_s", "load_s", "first_call_s")]
        share = f"1/{fresh / beyond(mine):,.0f}" if beyond(mine) < fresh / 1.5 else f"{beyond(mine) / fresh:.2f}"
        right = "yes" if all(row["right"] for row in mine) else "NO"
        steady = f"{median(r['steady_call_s'] for r in mine) * 1e3:.3g} ms"
        print(f"| {way} | {' | '.join(cells)} | **{beyond(mine):.3g} s** | {share} | {steady} | {right} |")
    print(f"\nMedians of {max(row['round'] for row in rows) + 1} starts; `of it`: of a fresh torch.compile.\n")


def beyond(rows: list[dict]) -> float:
    """Seconds beyond importing torch and building the model."""
    return median(row["load_s"] + row["first_call_s"] for row in rows)


def overheads(rows: list[dict]) -> None:
    """What the guards cost."""
    if not rows:
        return
    print("### The loaded module against the bare runner of its package\n")
    print("| model | bare call | ratio (95%) | overhead a call |")
    print("|---|---|---|---|")
    for row in rows:
        ratio = f"{row['ratio']:.4f} ({row['low']:.4f} to {row['high']:.4f})"
        print(f"| {row['model']} | {row['bare_us']:,.1f} µs | {ratio} | {row['overhead_us']:.1f} µs |")
    print()


if __name__ == "__main__":
    main()
