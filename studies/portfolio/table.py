"""Print the README, from what was recorded: `python studies/portfolio/table.py > studies/portfolio/README.md`."""

import json
import math
from pathlib import Path
from typing import Any

from workloads import WORKLOADS

HERE = Path(__file__).parent
OURS = "autocompile"
# By these a way by hand is right: the limits that candidates are held to (`core/tolerance.py`).
LIMIT, REDUCED_LIMIT = 1e-5, 1e-2
# A GPU's convolutions are computed in TF32, which rounds to ten bits, by eager as well.
GPU_LIMIT = 1e-3
Row = dict[str, Any]


def main() -> None:
    """Print it."""
    print("# Portfolio: what a few minutes of searching deliver, against every way by hand\n")
    print(
        "Made by `table.py` from `results/`, which `record.py` records and says how. Times are eager's over the way's,"
    )
    print("all ways of a workload in one process, interleaved; a way in brackets computes something else.\n")
    for path in sorted((HERE / "results").glob("*.jsonl")):
        machine, *rows = [json.loads(line) for line in path.read_text().splitlines()]
        libraries = ", ".join(f"{name} {machine[name]}" for name in ("openvino", "onnxruntime") if name in machine)
        where = machine.get("gpu", f"{machine['cpu']}, {machine['cores']} cores")
        print(f"## {where}, torch {machine['torch']}{f', {libraries}' if libraries else ''}\n")
        budgets = ", ".join(dict.fromkeys(row["budget"] for row in rows))
        said = f"Searched for {budgets} each. " if budgets else ""
        print(f"{said}Recorded so far: {len(rows)} of {len(WORKLOADS)} workloads.\n")
        if not rows:
            continue
        rows = [{**row, "limit": GPU_LIMIT if "gpu" in machine else LIMIT} for row in rows]
        compared(rows)
        held(rows)


def compared(rows: list[Row]) -> None:
    """A row for each workload, and the geometric mean of each way over all of them."""
    ways = [way for way in dict.fromkeys(way for row in rows for way in row["ways"]) if way not in ("eager", OURS)]
    print(f"| workload | eager | **served** | by | {' | '.join(ways)} |")
    print("|---|---|---|---|" + "---|" * len(ways))
    for row in rows:
        ours = row["ways"][OURS]
        own = f"**{ours['speedup']:.2f}x** ({ours['low']:.2f} to {ours['high']:.2f})"
        cells = [_cell(row, way) for way in ways]
        eager = f"{row['ways']['eager']['ms']:.3g} ms"
        print(f"| {row['workload']} | {eager} | {own} | {row['winner']} | {' | '.join(cells)} |")
    means = [_mean([row["ways"][way]["speedup"] if _is_right(row, way) else 1.0 for row in rows]) for way in ways]
    own_mean = _mean([row["ways"][OURS]["speedup"] for row in rows])
    print(f"| geometric mean | | **{own_mean:.2f}x** | | {' | '.join(f'{mean:.2f}x' for mean in means)} |\n")
    print("Where a way fails or computes something else, eager stands in its place in the mean.\n")


def held(rows: list[Row]) -> None:
    """Against the best by hand, and whether what was said holds in further processes."""
    print(
        "Start: loading and the first call. Memory in MB: what is packed, what one process that serves has of its own"
    )
    print("and shared pages, and what each of four has when they serve at the same time.\n")
    columns = "start | packed | alone | each of four"
    print(f"| workload | best by hand | served, of that | said | three more processes | {columns} |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        right = {way: found["speedup"] for way, found in row["ways"].items() if way != OURS and _is_right(row, way)}
        best = max(right, key=lambda way: right[way])
        share = row["ways"][OURS]["speedup"] / right[best]
        said = row["verdict"]
        again = ", ".join(f"{speedup:.2f}x" for speedup in row["again"])
        print(
            f"| {row['workload']} | {best} {right[best]:.2f}x | {share:.0%} | {said['value']:.2f}x "
            f"({said['low']:.2f} to {said['high']:.2f}) | {again} | {row['startup_s'] * 1e3:.0f} ms | {_memory(row)} |"
        )
    print()


def _memory(row: Row) -> str:
    if "alone_mb" not in row:
        return f"{row['packed_mb']:.0f} | | " if "packed_mb" in row else " | | "
    (alone,), together = row["alone_mb"], row["together_mb"]
    return f"{row['packed_mb']:.0f} | {alone:.0f} | {sum(together) / len(together):.0f}"


def _cell(row: Row, way: str) -> str:
    if way not in row["ways"]:
        return "fails"
    speedup = f"{row['ways'][way]['speedup']:.2f}x"
    return speedup if _is_right(row, way) else f"({speedup})"


def _is_right(row: Row, way: str) -> bool:
    error = row["built"].get(way, {}).get("error")
    return way in row["ways"] and error is not None and error <= (REDUCED_LIMIT if "bf16" in way else row["limit"])


def _mean(speedups: list[float]) -> float:
    return math.exp(sum(map(math.log, speedups)) / len(speedups))


if __name__ == "__main__":
    main()
