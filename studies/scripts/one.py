"""Run a script once, in one of the ways of `record.py`: python one.py WAY RECOMMENDATION OUT SCRIPT ARGS.

Every way has the same hook, which records when each optimizer step ends. The file steps.json in the directory OUT gets
the median and the longest time between these ends in milliseconds, and the number of steps.
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

from msgspec.structs import replace
from torch.optim.optimizer import register_optimizer_step_post_hook

from autocompile.artifact.integrity import open_artifact, write_manifest
from autocompile.artifact.trained_script import TrainedScript
from autocompile.core.job import Watching
from autocompile.core.plan import Plan
from autocompile.runtime.catalogue import kind_of
from autocompile.workload.watching.main import run_as_main
from autocompile.workload.watching.script import watched

ENDS: list[tuple[int, float]] = []


def main() -> None:
    """Run the script and write steps.json."""
    way, rec, out, script, *arguments = sys.argv[1:]
    register_optimizer_step_post_hook(lambda own, _args, _kwargs: ENDS.append((id(own), time.perf_counter())))
    WAYS[way](Path(rec), Path(script), arguments, Path(out))
    # Count the steps of the busiest optimizer only: another one may only have tested whether an update works.
    (busiest, _steps), *_others = Counter(own for own, _end in ENDS).most_common()
    first = [end for own, end in ENDS if own == busiest]
    steps = [1e3 * (after - before) for before, after in pairwise(first)]
    told = {"step_ms": statistics.median(steps), "slowest_ms": max(steps), "steps": len(first)}
    (Path(out) / "steps.json").write_text(json.dumps(told))


def plain(_rec: Path, script: Path, arguments: list[str], _out: Path) -> None:
    """Run the script unchanged."""
    run_as_main(script, arguments)


def recommended(rec: Path, script: Path, arguments: list[str], _out: Path) -> None:
    """Run the script as `autocompile run` does."""
    with TrainedScript(rec).applied():
        run_as_main(script, arguments)


def unchanged(rec: Path, script: Path, arguments: list[str], out: Path) -> None:
    """Run the script like `recommended`, with a recommendation that changes nothing."""
    manifest = open_artifact(rec, None).manifest
    with tempfile.TemporaryDirectory() as directory:
        given = replace(manifest, plan=Plan(), serving=kind_of(Plan()).unpacked, files=(), label="eager")
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
