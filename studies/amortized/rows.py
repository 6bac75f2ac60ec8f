"""The recorded rows: one JSON object per line, one file for each kind of machine and version of torch."""

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

from machine import by_cores, described, results_path  # noqa: E402


def path() -> Path:
    """Return the results file of this machine; its first line describes the machine."""
    return results_path(HERE / "results", by_cores(), described("cpu", "cores", "cpu_features", "torch"))


def done(kind: str, **fields: Any) -> list[dict[str, Any]]:
    """Return the rows of this kind that have these values."""
    rows = [json.loads(line) for line in path().read_text().splitlines()]
    return [row for row in rows if row["kind"] == kind and all(row.get(name) == v for name, v in fields.items())]


def append(row: dict[str, Any]) -> None:
    """Append a row."""
    with path().open("a") as stream:
        stream.write(json.dumps(row) + "\n")
