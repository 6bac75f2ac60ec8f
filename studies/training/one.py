"""Train one workload in one way: measure its start, its losses, and its speed relative to eager in this process.

    python studies/training/one.py NAME WAY [--seconds 20]                      # prints JSON
    python studies/training/one.py NAME ours --recommendation DIRECTORY

WAY is one of `by_hand.WAYS`, or `ours`. The way does its first steps before anything else, so that its start is not
affected by eager. Then an eager loop of the same model does the same steps on the same batches. Then the steps of both
alternate.
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
    """Time the way and print JSON."""
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
    """Return the function that builds a loop. `ours` is imported only if chosen, so it cannot affect ways by hand."""
    if name != OURS:
        return WAYS[name]
    from ours import prepared

    return partial(prepared, recommendation)


@dataclass(frozen=True)
class Start:
    """The first steps of a loop: their losses, and how many seconds longer than usual they took."""

    loop: Loop
    losses: Sequence[float]
    cold_start_s: float


def measured(name: str, build: Callable[[Workload], Loop], device: str, seconds: float) -> dict[str, Any]:
    """Return the measurements of a way. Losses are means over the first or the last round of the batches."""
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
    """Build a loop and do its first steps. The cold start is the time beyond that of as many usual steps."""
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
    """A loop for the clock: each run is a step on the next batch. Training continues; no state is restored.

    It has only what `trial.clock.timing` needs of a step: `threads`, `state`, `preserved` and `run`.
    """

    threads = 0

    def __init__(self, loop: Loop, batches: Sequence[Batch]) -> None:
        self._loop, self._batches = loop, itertools.cycle(batches)
        self.state = State()

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """Do nothing: no other loop shares the state that this loop changes."""
        yield

    def run(self, _sample: object) -> torch.Tensor:
        """Do a step on the next batch."""
        return self._loop.step(next(self._batches))


def timed(loop: Loop, batches: Sequence[Batch], device: str, threads: int) -> Subject:
    """Return the loop as a subject to time with `threads` threads."""
    going: Any = Going(loop, batches)
    nothing: Any = None
    return subject(going, (nothing,), device, threads)


if __name__ == "__main__":
    main()
