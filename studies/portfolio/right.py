"""Which ways of a recorded row have right results, and the fastest of those by hand."""

from collections.abc import Mapping
from typing import Any

OURS, FOR_ARRAYS = "autocompile", "autocompile_numpy"
# A way by hand is correct within the same limits as candidates (`core/tolerance.py`).
LIMIT, REDUCED_LIMIT = 1e-5, 1e-2
# On a GPU, eager also computes convolutions in TF32, which rounds to ten bits.
GPU_LIMIT = 1e-3
Row = Mapping[str, Any]


def limit_on(device_type: str) -> float:
    """Return the limit of the error in full precision."""
    return GPU_LIMIT if device_type == "cuda" else LIMIT


def is_right(row: Row, way: str) -> bool:
    """Whether the results of a way are within its limit; `row` has the limit in full precision."""
    error = row["built"].get(way, {}).get("error")
    precision = row["winner"] if way in (OURS, FOR_ARRAYS) else way
    limit = REDUCED_LIMIT if "bf16" in precision else row["limit"]
    return way in row["ways"] and error is not None and error <= limit


def by_hand(row: Row) -> dict[str, float]:
    """Return the speed-up of each way by hand that is right, eager included."""
    ways = (way for way in row["ways"] if way not in (OURS, FOR_ARRAYS) and is_right(row, way))
    return {way: row["ways"][way]["speedup"] for way in ways}


def best_by_hand(row: Row) -> str:
    """Return the fastest of these ways."""
    speedups = by_hand(row)
    return max(speedups, key=lambda way: speedups[way])
