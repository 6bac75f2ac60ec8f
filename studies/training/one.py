"""One way to train one workload: how it starts, what it learns, and how fast it is beside eager, in this process.

    python studies/training/one.py NAME WAY [--seconds 20]                      # prints JSON
    python studies/training/one.py NAME ours --recommendation DIRECTORY

WAY is one of `by_hand.WAYS`, or `ours`. Its first steps come first, so that it starts as it would in a process of its
own; then an eager loop of the same model does the same steps on the same batches; then steps of both alternate.
"""

import argparse
import itertools
import json
import logging
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from by_hand import WAYS, Loop
from workloads import BATCHES, KINDS, Batch, Workload, device_type, workload

from autocompile.core.job import Timing
from autocompile.heap import settle_heap
from autocompile.trial.clock.devices import DEVICES
from autocompile.trial.clock.timing import Subject, subject, time_pairs
from autocompile.workload.state import State

OURS = "ours"
STEPS = 6 * BATCHES
PRECISION = 0.005
_SEED = 1


def main() -> None:
    """Time it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(KINDS))
    parser.add_argument("way", choices=[*WAYS, OURS])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--recommendation", default="")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    settle_heap()
    build = way_of(arguments.way, arguments.recommendation)
    print(json.dumps(measured(arguments.name, build, device_type(), arguments.seconds)))


def way_of(name: str, recommendation: str) -> Callable[[Workload], Loop]:
    """From a workload to a loop. Ours is imported only for itself: nothing of it is part of a way by hand."""
    if name != OURS:
        return WAYS[name]
    from ours import prepared

    return partial(prepared, recommendation)


@dataclass(frozen=True)
class Start:
    """The first steps of a loop: their losses, and by how much they took longer than steps usually do."""

    loop: Loop
    losses: Sequence[float]
    cold_start_s: float


def measured(name: str, build: Callable[[Workload], Loop], device: str, seconds: float) -> dict[str, Any]:
    """All that is recorded of a way; losses are means over the batches, first and last."""
    work, usual_threads = workload(name, device), torch.get_num_threads()
    own, threads = started(build, work), torch.get_num_threads()
    torch.set_num_threads(usual_threads)
    eager = started(WAYS["eager"], workload(name, device))
    baseline = timed(eager.loop, work.batches, device, usual_threads)
    candidate = timed(own.loop, work.batches, device, threads)
    pairs = time_pairs(baseline, candidate, Timing(PRECISION, seconds), seed=0)
    slower = pairs.ratio
    return {
        "ms": pairs.candidate.mean_ms,
        "eager_ms": pairs.baseline.mean_ms,
        "speedup": 1 / slower.value,
        "low": 1 / slower.high,
        "high": 1 / slower.low,
        "steps": pairs.candidate.calls,
        "cold_start_s": own.cold_start_s,
        "loss": statistics.mean(own.losses[-BATCHES:]),
        "eager_first_loss": statistics.mean(eager.losses[:BATCHES]),
        "eager_loss": statistics.mean(eager.losses[-BATCHES:]),
        "noisy": pairs.contamination.noisy,
    }


def started(build: Callable[[Workload], Loop], work: Workload) -> Start:
    """Build a loop and do its first steps. What that takes beyond steps of the usual time, is the cold start."""
    synchronize = DEVICES[work.device].synchronize
    torch.manual_seed(_SEED)
    losses, marks = [], [time.perf_counter()]
    loop = build(work)
    for batch in itertools.islice(itertools.cycle(work.batches), STEPS):
        losses.append(float(loop.step(batch)))
        synchronize()
        marks.append(time.perf_counter())
    took = [end - begin for begin, end in itertools.pairwise(marks)]
    usual_s = statistics.median(took[STEPS // 2 :])
    return Start(loop, losses, max(0.0, sum(took) - STEPS * usual_s))


class Going:
    """A loop as the clock runs it: each run is a step on the next batch. It trains on and on, and nothing is put back.

    It has what `trial.clock.timing` asks of a step, and nothing more: `threads`, `state`, `preserved` and `run`.
    """

    threads = 0

    def __init__(self, loop: Loop, batches: Sequence[Batch]) -> None:
        self._loop, self._batches = loop, itertools.cycle(batches)
        self.state = State()

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """Do nothing: no other loop has what this one changes."""
        yield

    def run(self, _sample: object) -> torch.Tensor:
        """A step."""
        return self._loop.step(next(self._batches))


def timed(loop: Loop, batches: Sequence[Batch], device: str, threads: int) -> Subject:
    """As something to time, with so many threads."""
    going: Any = Going(loop, batches)
    nothing: Any = None
    return subject(going, (nothing,), device, threads)


if __name__ == "__main__":
    main()
