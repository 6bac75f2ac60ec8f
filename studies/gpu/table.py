"""Print all results of a device, from all studies, in one table. No torch."""

import math
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

Row = Mapping[str, Any]
Line = tuple[str, str, str, str]
_HEAD = ("part", "what", "result", "compared with")
_TRUST = Path(__file__).resolve().parents[1] / "trust"


def printed(rows: Mapping[str, Sequence[Row]], device: str) -> str:
    """Return the table as Markdown; a part without results has a row that says so."""
    lines = [_HEAD]
    for part, of_it in rows.items():
        found = list(_SUMMARIES[part](of_it))
        lines += found or [(part, "", "nothing is recorded", "")]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEAD))]
    laid_out = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([f"\n{device}\n", laid_out[0], rule, *laid_out[1:]])


def _tests(rows: Sequence[Row]) -> Iterator[Line]:
    counted = Counter(row["outcome"] for row in rows)
    for outcome in ("PASSED", "FAILED", "ERROR", "SKIPPED"):
        if counted[outcome]:
            names = [row["test"].split("::", 1)[1] for row in rows if row["outcome"] == outcome]
            yield "tests", outcome.lower(), str(counted[outcome]), "" if outcome == "PASSED" else "; ".join(names)


def _portfolio(rows: Sequence[Row]) -> Iterator[Line]:
    for row in rows:
        by_hand = {way: one["speedup"] for way, one in row["ways"].items() if way != "autocompile"}
        best = max(by_hand, key=lambda way: by_hand[way])
        ours = row["ways"]["autocompile"]
        said = f"{ours['speedup']:.2f}x ({ours['low']:.2f} to {ours['high']:.2f}), {row['winner']}"
        yield "portfolio", row["workload"], said, f"{best} {by_hand[best]:.2f}x, start {row['startup_s'] * 1e3:.0f} ms"


def _training(rows: Sequence[Row]) -> Iterator[Line]:
    for row in rows:
        by_hand = {way: one["speedup"] for way, one in row["ways"].items() if "speedup" in one}
        best = max(by_hand, key=lambda way: by_hand[way], default="")
        ours = [one["speedup"] for one in row["ours"] if "speedup" in one]
        said = (
            f"{median(ours):.2f}x, {row['verdict']['winner']}" if ours else f"failed: {row['ours'][0]['failed'][:80]}"
        )
        yield "training", row["workload"], said, f"{best} {by_hand[best]:.2f}x" if best else "all failed"


def _startup(rows: Sequence[Row]) -> Iterator[Line]:
    starts = [row for row in rows if row["kind"] == "start"]
    for name in dict.fromkeys(row["model"] for row in starts):
        took = {way: _beyond(starts, name, way) for way in ("autocompile.load", "torch.compile, fresh", "eager")}
        right = all(row["right"] for row in starts if row["model"] == name)
        beside = ", ".join(f"{way} {s:.3g} s" for way, s in list(took.items())[1:] if s is not None)
        ours = took["autocompile.load"]
        said = f"{ours:.3g} s" if ours is not None else "not recorded"
        yield "startup", name, said if right else f"{said}, and something was WRONG", beside


def _beyond(starts: Sequence[Row], name: str, way: str) -> float | None:
    """Return the seconds of loading and of the first call."""
    found = [row["load_s"] + row["first_call_s"] for row in starts if (row["model"], row["way"]) == (name, way)]
    return median(found) if found else None


def _trust(rows: Sequence[Row]) -> Iterator[Line]:
    verdicts = [row for row in rows if row["kind"] == "aa"]
    if not verdicts:
        return
    wins = _false_wins(verdicts)
    logs = [abs(log) for row in verdicts for each in row["processes"].values() for log, _low, _high in each]
    noisy = sum(1 for row in verdicts if row["noisy"])
    beside = f"a process is off by {math.expm1(median(logs)):.1%} (median), {noisy} reported noise"
    yield "trust", f"{len(verdicts)} verdicts between identical programs", f"{wins} false wins", beside


def _false_wins(verdicts: Sequence[Row]) -> int:
    """Count the false wins, as the current judge decides."""
    sys.path.append(str(_TRUST))
    from replay import CHANGES, judged

    return sum(judged(row["processes"], CHANGES).winner.label != "baseline" for row in verdicts)


_SUMMARIES = {"tests": _tests, "portfolio": _portfolio, "training": _training, "startup": _startup, "trust": _trust}
