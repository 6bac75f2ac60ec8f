"""Run a script once, in one of the ways of `record.py`: python one.py WAY RECOMMENDATION OUT SCRIPT ARGS.

Every way has the same hooks, which record when each step of the script ends: an optimizer's step; in a script that does
not train, the arrival of a batch from a DataLoader; without a DataLoader, a printed line. The file steps.json in the
directory OUT gets the median and the longest time between these ends in milliseconds, and the number of steps.
"""

import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import dataloader

from autocompile.artifact.generated_script import GeneratedScript
from autocompile.artifact.integrity import open_artifact, write_manifest
from autocompile.artifact.scripted import ServedScript
from autocompile.artifact.trained_script import TrainedScript
from autocompile.core.job import Watching
from autocompile.core.plan import Plan
from autocompile.runtime.catalogue import kind_of
from autocompile.workload.watching.main import run_as_main
from autocompile.workload.watching.script import watched

_FEWEST = 3


class Ends:
    """The times at which steps of the script ended."""

    def __init__(self) -> None:
        self.updates: list[tuple[int, float]] = []
        self.batches: list[float] = []
        self.lines: list[float] = []

    def listen(self) -> None:
        """Start to record."""
        register_optimizer_step_post_hook(
            lambda own, _args, _kwargs: self.updates.append((id(own), time.perf_counter()))
        )
        iterator, write = dataloader._BaseDataLoaderIter, sys.stdout.write  # noqa: SLF001  of all its iterators
        before = iterator.__next__

        def following(loader: Any) -> Any:
            batch = before(loader)
            self.batches.append(time.perf_counter())
            return batch

        def written(text: str) -> int:
            self.lines += [time.perf_counter()] * ("\n" in text)
            return write(text)

        iterator.__next__, sys.stdout.write = following, written  # type: ignore[method-assign]

    def of_steps(self) -> list[float]:
        """Return the ends of the script's steps; none if there were not enough of any kind."""
        # Only those of the busiest optimizer: another one may only have tested whether an update works.
        busiest = Counter(own for own, _end in self.updates).most_common(1)
        updates = [end for own, end in self.updates if own == busiest[0][0]]
        return next((ends for ends in (updates, self.batches, self.lines) if len(ends) >= _FEWEST), [])


def main() -> None:
    """Run the script and write steps.json."""
    way, rec, out, script, *arguments = sys.argv[1:]
    ends = Ends()
    ends.listen()
    WAYS[way](Path(rec), Path(script), arguments, Path(out))
    own = ends.of_steps()
    steps = [1e3 * (after - before) for before, after in pairwise(own)]
    told = {"step_ms": statistics.median(steps), "slowest_ms": max(steps)} if steps else {}
    (Path(out) / "steps.json").write_text(json.dumps({**told, "steps": len(own)}))


def plain(_rec: Path, script: Path, arguments: list[str], _out: Path) -> None:
    """Run the script unchanged."""
    run_as_main(script, arguments)


def recommended(rec: Path, script: Path, arguments: list[str], _out: Path) -> None:
    """Run the script as `autocompile run` does."""
    manifest = open_artifact(rec, None).manifest
    kind = GeneratedScript if manifest.generation else TrainedScript if manifest.training else ServedScript
    with kind(rec).applied():
        run_as_main(script, arguments)


def unchanged(rec: Path, script: Path, arguments: list[str], out: Path) -> None:
    """Run the script like `recommended`, with a recommendation that changes nothing."""
    manifest = open_artifact(rec, None).manifest
    with tempfile.TemporaryDirectory() as directory:
        nothing: dict[str, Any] = {"files": (), "programs": (), "weights": {}, "standby": None, "prompts": ""}
        given = replace(manifest, plan=Plan(), serving=kind_of(Plan()).unpacked, label="eager", **nothing)
        write_manifest(Path(directory), given)
        recommended(Path(directory), script, arguments, out)


def watch(_rec: Path, script: Path, arguments: list[str], out: Path) -> None:
    """Run the script to its end, watched as by `autocompile tune`."""
    watched(script, arguments, Watching(seconds=600.0, calls=10**9), own=[out])


WAYS: dict[str, Callable[[Path, Path, list[str], Path], None]] = {
    "plain": plain,
    "recommended": recommended,
    "unchanged": unchanged,
    "watched": watch,
}

if __name__ == "__main__":
    main()
