"""Which sizes a model itself takes, tried in a process that may die of it.

    python -m autocompile.trial.check.sizes TASK.json     # prints a line for each size tried

On a GPU an index beyond a table is an assertion of the device's: it is told later than the call that it happened in,
and no other call of that process succeeds any more.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from autocompile.core.serde import Record, from_json, to_json, write_atomically
from autocompile.core.workload import Workload
from autocompile.trial.clock.devices import DEVICES
from autocompile.workload.axes import Place, resized
from autocompile.workload.call import Call
from autocompile.workload.samples import Sample
from autocompile.workload.spool import unspool

_TAKEN, _REFUSED = "taken", "refused"
# Each takes some seconds; what is left is refused.
_MOST_PROCESSES = 4
# One that takes longer hangs.
_LONGEST_S = 600.0


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


def taken_once(task: SizesTask, limit_s: float) -> list[bool]:
    """What `taken_aside` says within so many seconds; the workload's directory keeps it for whoever asks again."""
    asked = hashlib.sha256(to_json((task.batch, task.sample, task.sizes))).hexdigest()[:16]
    kept = Path(task.workload.directory) / f"sizes-{asked}.json"
    if not kept.exists():
        write_atomically(kept, to_json(taken_aside(task, limit_s)))
    return from_json(kept.read_bytes(), list[bool])


def taken_aside(task: SizesTask, limit_s: float = math.inf) -> list[bool]:
    """Whether the model takes each of these sizes, as far as that is found out within so many seconds.

    One that ends the process is one that it does not take.
    """
    answers: list[bool] = []
    ends = time.monotonic() + limit_s
    for _process in range(_MOST_PROCESSES):
        left, left_s = task.sizes[len(answers) :], ends - time.monotonic()
        if not left or left_s <= 0:
            break
        told = _told(SizesTask(task.workload, task.batch, task.sample, left), left_s)
        answers += told if len(told) == len(left) else [*told, False]
    return answers + [False] * (len(task.sizes) - len(answers))


def _told(task: SizesTask, limit_s: float) -> list[bool]:
    """What a process said before it ended, well or otherwise."""
    with tempfile.TemporaryDirectory(prefix="autocompile-") as scratch:
        asked = Path(scratch) / "task.json"
        asked.write_bytes(to_json(task))
        command = [sys.executable, "-P", "-m", "autocompile.trial.check.sizes", str(asked)]
        said = Path(scratch) / "said"
        with said.open("w") as output, contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                command, stdout=output, stderr=subprocess.DEVNULL, check=False, timeout=min(limit_s, _LONGEST_S)
            )
        lines = said.read_text().splitlines()
    return [line == _TAKEN for line in lines if line in (_TAKEN, _REFUSED)]


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
