"""Print the README, from what was recorded: `python studies/training/table.py > studies/training/README.md`.

Another directory of results may be given.
"""

import json
import math
import statistics
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
# A way is plausible if its loss fell as far as eager's, to within this share of how far that fell.
PLAUSIBLE = 0.2
HEAD = """\
# Training: what a search delivers for a step, against every way by hand

Made by `table.py` from `results/`, which `record.py` records and says how.

`workloads.py` has a ViT of 6 layers of 192 (16 images of 64 x 64), a GPT-2 of 4 layers of 256 (8 sequences of 64
tokens), a ResNet-18 (16 images of 64 x 64), a language model with an LSTM (16 sequences of 48 tokens), a denoising step
of a small U-Net (4 images of 32 x 32), and an MLP (256 samples), each with its loss, its optimizer and four batches.
Three more are chosen only where there is a GPU: a ResNet-50 (64 images of 224 x 224), a ResNet-18 (128 images of
32 x 32), and a transformer of 6 layers of 512 (128 sequences of 32 tokens).

`by_hand.py` has the ways that people take: eager; the same with the optimizer's `fused=True`; that under autocast in
bfloat16; and both of these with `torch.compile(model)`. Each is timed against eager in a process of its own, with an
empty compiler cache. Ours is what `autocompile.optimize(..., training=...)` recommends, timed in the same way in three
more processes, of which the table has the one in the middle; so has it of the fastest ways by hand, within 5% of each
other, where two more processes of each were recorded. Where there are no instructions for bfloat16, the ways by hand in
it are left out.
"""
NO_GPU = "No GPU has run this study so far, so nothing is known of the three workloads for it.\n"
Row = dict[str, Any]


def main() -> None:
    """Print it."""
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "results"
    files = [[json.loads(line) for line in path.read_text().splitlines()] for path in sorted(directory.glob("*.jsonl"))]
    has_gpu = any(machine["device"] == "cuda" and rows for machine, *rows in files)
    print(HEAD)
    if not has_gpu:
        print(NO_GPU)
    if not files:
        print("Nothing is recorded yet.")
    for machine, *rows in files:
        print(f"## {machine['kind']}, torch {machine['torch']}\n")
        left_out = "" if machine["bf16"] else " No ways by hand in bfloat16: there are no instructions for it here."
        print(f"Recorded so far: {len(rows)} of {machine['workloads']} workloads.{left_out}\n")
        if rows:
            compared(rows)
            held(rows)
            begun(rows)
            failed(rows)


def compared(rows: list[Row]) -> None:
    """Milliseconds a step, and eager's over it, of each way; the geometric means of the latter."""
    ways = names(rows)
    print("Milliseconds a step, and eager's time over it in the same process, with its 95% interval. Eager is compared")
    print("with itself, too, which shows what the machine leaves open. In brackets: its loss is not like eager's.\n")
    print(f"| workload | {' | '.join(ways)} | **ours** |")
    print("|---|" + "---|" * (len(ways) + 1))
    for row in rows:
        cells = [cell(by_hand(row, way)) for way in ways]
        print(f"| {row['workload']} | {' | '.join(cells)} | {cell(median_of(row['ours']))} |")
    means = [statistics.geometric_mean([counted(by_hand(row, way)) for row in rows]) for way in ways]
    own = statistics.geometric_mean([counted(median_of(row["ours"])) for row in rows])
    print(f"| geometric mean | {' | '.join(f'{mean:.2f}x' for mean in means)} | {own:.2f}x |\n")
    print("Where a way fails, or its loss is not like eager's, eager stands in its place in the mean.\n")


def held(rows: list[Row]) -> None:
    """Ours against the best by hand, and whether what was said holds in further processes."""
    print("| workload | best by hand | ours, of that | who | said | processes | searched for |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        best, speedup = best_of(row)
        ours, verdict = median_of(row["ours"]), row["verdict"]
        share = f"{ours['speedup'] / speedup:.0%}" if "speedup" in ours else "fails"
        share = share if is_plausible(ours) or "speedup" not in ours else f"({share})"
        again = ", ".join(f"{one['speedup']:.2f}x" for one in row["ours"] if "speedup" in one)
        who, said = verdict.get("winner", "none"), ratio(verdict["said"]) if "said" in verdict else "nothing"
        print(
            f"| {row['workload']} | {best} {speedup:.2f}x | {share} | {who} | {said} | {again or 'none'} "
            f"| {row['budget']} |"
        )
    print()


def begun(rows: list[Row]) -> None:
    """What it takes to start, and the losses after the first steps."""
    ways = names(rows)
    print("Cold start: how many seconds longer than usual the first 24 steps take, compiling included, with an empty")
    print("cache. Behind it the mean loss over the last 4 of them; eager's falls from the one in the second column.\n")
    print(f"| workload | loss at first | {' | '.join(ways)} | **ours** |")
    print("|---|---|" + "---|" * (len(ways) + 1))
    for row in rows:
        known = [one for one in row["ways"].values() if "failed" not in one]
        first = f"{known[0]['eager_first_loss']:.3g}" if known else "unknown"
        cells = [start(row["ways"].get(way)) for way in ways]
        print(f"| {row['workload']} | {first} | {' | '.join(cells)} | {start(median_of(row['ours']))} |")
    print()


def failed(rows: list[Row]) -> None:
    """Why ways failed."""
    for row in rows:
        own = {"ours": median_of(row["ours"])}  # of a search that failed, its failure
        for way, found in {**row["ways"], **own}.items():
            if "failed" in found:
                print(f"- {row['workload']}, {way}: {found['failed']}")
    print()


def names(rows: list[Row]) -> list[str]:
    """Of all ways by hand that were taken."""
    return list(dict.fromkeys(way for row in rows for way in row["ways"]))


def median_of(processes: list[Row]) -> Row:
    """The one in the middle, by its speed-up; a failure if one did."""
    timed = sorted((one for one in processes if "speedup" in one), key=lambda one: one["speedup"])
    failed = [one for one in processes if "speedup" not in one]
    return failed[0] if failed else timed[(len(timed) - 1) // 2]


def by_hand(row: Row, way: str) -> Row | None:
    """The one in the middle of a way's processes, of which most ways have one."""
    first = row["ways"].get(way)
    return None if first is None else median_of([first, *row.get("again", {}).get(way, [])])


def best_of(row: Row) -> tuple[str, float]:
    """The fastest plausible way by hand, and its speed-up; eager's is 1, as that is what it is compared with."""
    speedups = {"eager": 1.0}
    found = {way: by_hand(row, way) for way in row["ways"] if way != "eager"}
    speedups |= {way: one["speedup"] for way, one in found.items() if one is not None and is_plausible(one)}
    best = max(speedups, key=lambda way: speedups[way])
    return best, speedups[best]


def is_plausible(found: Row | None) -> bool:
    """Whether it ran, and learned what eager learned, to within a fifth of that."""
    if found is None or "speedup" not in found:
        return False
    fall = abs(found["eager_first_loss"] - found["eager_loss"])
    return math.isfinite(found["loss"]) and abs(found["loss"] - found["eager_loss"]) <= PLAUSIBLE * fall


def counted(found: Row | None) -> float:
    """Its speed-up, or eager's where it is none to be taken."""
    return found["speedup"] if found is not None and is_plausible(found) else 1.0


def cell(found: Row | None) -> str:
    """Milliseconds and speed-up of a way."""
    if found is None or "speedup" not in found:
        return "not taken" if found is None else "fails"
    said = f"{found['ms']:.3g} ms, {ratio(found)}{', noisy' if found['noisy'] else ''}"
    return said if is_plausible(found) else f"({said})"


def ratio(found: Row) -> str:
    """With its interval."""
    return f"{found['speedup']:.2f}x ({found['low']:.2f} to {found['high']:.2f})"


def start(found: Row | None) -> str:
    """Seconds and loss."""
    if found is None or "speedup" not in found:
        return "not taken" if found is None else "fails"
    return f"{found['cold_start_s']:.1f} s, {found['loss']:.3g}"


if __name__ == "__main__":
    main()
