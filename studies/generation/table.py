"""Print the README, from what was recorded: `python studies/generation/table.py > studies/generation/README.md`."""

import json
import math
import statistics
import sys
from pathlib import Path
from typing import Any

from one import WAYS
from scipy.stats import t

HERE = Path(__file__).parent
HEAD = """\
# Generation: how fast texts are generated, as recommended and by ways by hand

Made by `table.py` from `results/`, which `record.py` records and says how.

Texts of 64 new tokens are generated greedily from prompts of 32, one at a time. `eager` is `model.generate` as it is;
`bf16` the same with weights in bfloat16; `compiled` has a static cache and `torch.compile(model.forward)`; `ours` is
`autocompile.load(rec, model).generate`. Each way generates in turn, in processes of their own. Ratios of tokens a
second are geometric means over the rounds with their 95% intervals.
"""
Row = dict[str, Any]


def main() -> None:
    """Print it."""
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "results"
    print(HEAD)
    for path in sorted(directory.glob("*.jsonl")):
        machine, *rows = [json.loads(line) for line in path.read_text().splitlines()]
        print(f"## {machine['kind']}, torch {machine['torch']}\n")
        print("| model | way | tokens a second | over eager | first text | same tokens |")
        print("|---|---|---|---|---|---|")
        for row in rows:
            for way in WAYS:
                print(line(row, way))
        print()
        for row in rows:
            said = "" if row["said"]["whole"] is None else f", whole texts {row['said']['whole']:.2f}x"
            step = f"said: a decode step {row['said']['step']:.2f}x{said}"
            print(f"- {row['model']}: {row['label']} after {row['budget']}; {step}.")


def line(row: Row, way: str) -> str:
    """A way, in one row of the table."""
    found = [one[way] for one in row["rounds"] if "failed" not in one[way]]
    if not found:
        return f"| {row['model']} | {way} | failed: {row['rounds'][0][way]['failed']} | | | |"
    rate, first = (statistics.median(one[what] for one in found) for what in ("tokens_per_s", "first_s"))
    same = "" if way == "eager" else "yes" if all(one["same_tokens"] for one in found) else "no"
    over = "" if way == "eager" else ratio(row, way)
    return f"| {row['model']} | {way} | {rate:.0f} | {over} | {first:.2f} s | {same} |"


def ratio(row: Row, way: str) -> str:
    """Its tokens a second over eager's, in pairs."""
    logs = [math.log(one[way]["tokens_per_s"] / one["eager"]["tokens_per_s"]) for one in row["rounds"]]
    half = t.ppf(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    middle = statistics.mean(logs)
    return f"{math.exp(middle):.2f}x ({math.exp(middle - half):.2f} to {math.exp(middle + half):.2f})"


if __name__ == "__main__":
    main()
