"""What was recorded: one JSON object a line, one file for each kind of machine and version of torch."""

import json
from pathlib import Path
from typing import Any

from autocompile.host import environment

HERE = Path(__file__).parent


def path() -> Path:
    """The file of this machine; its first line describes the machine."""
    machine = environment()
    device = machine.gpus[0].name if machine.gpus else f"{machine.cores}-core-cpu"
    file = HERE / "results" / f"{device.replace(' ', '-')}-torch{machine.torch.split('+')[0]}.jsonl"
    if not file.exists():
        described = {"kind": "machine", **{n: getattr(machine, n) for n in ("cpu", "cores", "cpu_features", "torch")}}
        file.write_text(json.dumps(described) + "\n")
    return file


def done(kind: str, **fields: Any) -> list[dict[str, Any]]:
    """The rows of this kind that have these values."""
    rows = [json.loads(line) for line in path().read_text().splitlines()]
    return [row for row in rows if row["kind"] == kind and all(row.get(name) == v for name, v in fields.items())]


def append(row: dict[str, Any]) -> None:
    """Keep one more."""
    with path().open("a") as stream:
        stream.write(json.dumps(row) + "\n")
