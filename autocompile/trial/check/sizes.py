"""Find out which sizes a model itself accepts, in a separate process that a wrong size may crash.

    python -m autocompile.trial.check.sizes TASK.json     # prints a line for each size tried

On a GPU, an index beyond the end of a table is a device-side assertion. It is reported later than the call that caused
it, and all further calls in that process fail.
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
# Each process takes some seconds. Sizes that are left after these processes count as refused.
_MOST_PROCESSES = 4
# A process that takes longer counts as hanging.
_LONGEST_S = 600.0


class Size(Record, frozen=True):
    """One call to try: a sample with another size at all `places` (leaf, axis)."""

    places: tuple[Place, ...]
    size: int


class SizesTask(Record, frozen=True):
    """Call the workload's model with its sample of this number, with batch size `batch` (0: as given), resized."""

    workload: Workload
    batch: int
    sample: int
    sizes: tuple[Size, ...]


def taken_once(task: SizesTask, limit_s: float) -> list[bool]:
    """Return the result of `taken_aside`, which is stored in the workload's directory for later calls."""
    asked = hashlib.sha256(to_json((task.batch, task.sample, task.sizes))).hexdigest()[:16]
    kept = Path(task.workload.directory) / f"sizes-{asked}.json"
    if not kept.exists():
        write_atomically(kept, to_json(taken_aside(task, limit_s)))
    return from_json(kept.read_bytes(), list[bool])


def taken_aside(task: SizesTask, limit_s: float = math.inf) -> list[bool]:
    """Return whether the model accepts each of these sizes. Sizes not tried within `limit_s` count as refused.

    A size that crashes the process counts as refused, too.
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
    """Return the answers that a process printed before it ended, successfully or not."""
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
    """Yield whether the model accepts a sample of each of these sizes, that is, raises no exception."""
    for one in sizes:
        try:
            eager.run(resized(sample, frozenset(one.places), one.size))
            DEVICES[device_type].synchronize()
        except Exception:  # whatever a model raises for a size that it does not accept
            yield False
        else:
            yield True


def main() -> None:
    """Try the sizes one after another, and print each answer."""
    task = from_json(Path(sys.argv[1]).read_bytes(), SizesTask)
    sys.path[:] = task.workload.search_path
    model, samples = unspool(task.workload, batch=task.batch)
    eager = Call(model, device_type=task.workload.device_type)
    for answer in tried(eager, samples[task.sample], task.sizes, task.workload.device_type):
        sys.stdout.write(f"{_TAKEN if answer else _REFUSED}\n")
        sys.stdout.flush()
        if not answer:
            DEVICES[task.workload.device_type].synchronize()  # raises if the device can no longer be used


if __name__ == "__main__":
    main()
