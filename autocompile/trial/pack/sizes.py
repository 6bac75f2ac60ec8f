"""Which sizes a model itself takes, tried in a process that may die of it.

    python -m autocompile.trial.pack.sizes TASK.json     # prints a line for each size tried

On a GPU an index beyond a table is an assertion of the device's: it is told later than the call that it happened in,
and no other call of that process succeeds any more.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from autocompile.core.serde import Record, from_json, to_json
from autocompile.core.workload import Workload
from autocompile.trial.clock.devices import DEVICES
from autocompile.workload.axes import Place, resized
from autocompile.workload.call import Call
from autocompile.workload.samples import Sample
from autocompile.workload.spool import unspool

_TAKEN, _REFUSED = "taken", "refused"
# Each takes some seconds; what is left is refused.
_MOST_PROCESSES = 4


class Size(Record, frozen=True):
    """One call to try: all `places` (leaf, axis) of a sample of another size."""

    places: tuple[Place, ...]
    size: int


class SizesTask(Record, frozen=True):
    """Call the workload's model with its sample of this number, in batches of `batch` (0: as given), resized."""

    workload: Workload
    batch: int
    sample: int
    sizes: tuple[Size, ...]


def taken_aside(task: SizesTask) -> list[bool]:
    """Whether the model takes each of these sizes. One that ends the process is one that it does not take."""
    answers: list[bool] = []
    for _process in range(_MOST_PROCESSES):
        left = task.sizes[len(answers) :]
        if not left:
            break
        told = _told(SizesTask(task.workload, task.batch, task.sample, left))
        answers += told if len(told) == len(left) else [*told, False]
    return answers + [False] * (len(task.sizes) - len(answers))


def _told(task: SizesTask) -> list[bool]:
    """What a process said before it ended, well or otherwise."""
    with tempfile.TemporaryDirectory(prefix="autocompile-") as scratch:
        asked = Path(scratch) / "task.json"
        asked.write_bytes(to_json(task))
        command = [sys.executable, "-P", "-m", "autocompile.trial.pack.sizes", str(asked)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [line == _TAKEN for line in done.stdout.splitlines() if line in (_TAKEN, _REFUSED)]


def tried(eager: Call, sample: Sample, sizes: Sequence[Size], device_type: str) -> Iterator[bool]:
    """Whether a model takes a sample of each of these sizes, as far as an exception tells."""
    for one in sizes:
        try:
            eager.run(resized(sample, frozenset(one.places), one.size))
            DEVICES[device_type].synchronize()
        except Exception:  # whatever a model raises for a size that is not its own
            yield False
        else:
            yield True


def main() -> None:
    """Try them in turn, each waited for."""
    task = from_json(Path(sys.argv[1]).read_bytes(), SizesTask)
    sys.path[:] = task.workload.search_path
    model, samples = unspool(task.workload, batch=task.batch)
    eager = Call(model, device_type=task.workload.device_type)
    for answer in tried(eager, samples[task.sample], task.sizes, task.workload.device_type):
        sys.stdout.write(f"{_TAKEN if answer else _REFUSED}\n")
        sys.stdout.flush()
        if not answer:
            DEVICES[task.workload.device_type].synchronize()  # raises where the device answers nothing any more


if __name__ == "__main__":
    main()
