"""Measure the packed artifact as production loads it, in new processes, as far as the budget allows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from autocompile.core.errors import RunnerError
from autocompile.core.job import FreshStart, FreshTask, TrialTask
from autocompile.core.outcome import Failure, Measurement
from autocompile.core.trial import Trial
from autocompile.core.units import format_duration
from autocompile.search.reserve import limits_of
from autocompile.search.run import Bench

# The reason given where the user ended the run.
INTERRUPTED = "interrupted by the user"

# A process that takes this many times the expected time, and at least this many seconds, counts as hung.
_PATIENCE, _PATIENCE_S = 5.0, 60.0


@dataclass(frozen=True)
class AsLoaded:
    """The measurements, or the `fault` for which the artifact is rejected, or why there is no measurement.

    `untimed`: the budget or the run ended before one process had measured it; the artifact may still be used.
    `stopped`: why no further process may be started, or "".
    """

    measured: tuple[Measurement, ...] = ()
    fault: str = ""
    untimed: str = ""
    stopped: str = ""


def measure_loaded(bench: Bench, trial: Trial, artifact: Path, processes: int, expected_s: float) -> AsLoaded:
    """Load the artifact in `processes` new processes, as far as the budget allows; one takes about `expected_s`."""
    measured: list[Measurement] = []
    for process in range(processes):
        longest = max((sum(m.phases_s.values()) for m in measured), default=0.0)
        left_s = bench.ledger.left_s()
        if left_s < max(longest, 1.0):
            break
        bench.listener.on_task(f"artifact in process {process + 1} of {processes}: {trial.label}")
        patience_s = max(_PATIENCE * expected_s, _PATIENCE_S)
        learning_s = 0.0 if measured else bench.learning_s
        timing = bench.settings.strategy.finals.timing
        task = bench.trial_task(trial.plan, timing, 1000 + process, learning_s=learning_s)
        try:
            reply = _measured(bench, replace(task, artifact=str(artifact)), process, min(left_s, patience_s))
        except RunnerError as fault:
            return AsLoaded(tuple(measured), untimed="" if measured else str(fault), stopped=str(fault))
        except KeyboardInterrupt:  # the runner has ended the process
            return AsLoaded(tuple(measured), untimed="" if measured else "interrupted", stopped=INTERRUPTED)
        if isinstance(reply, Measurement):
            measured.append(reply)
        elif reply.kind != "timeout":
            return AsLoaded(fault=f"it failed when it was loaded: {reply.message.splitlines()[0]}")
        elif patience_s < left_s:
            return AsLoaded(fault=f"it did not answer within {format_duration(patience_s)} when it was loaded")
        else:
            break
    return AsLoaded(tuple(measured), untimed="" if measured else "the budget ended first")


def _measured(bench: Bench, task: TrialTask, process: int, limit_s: float) -> Measurement | Failure:
    """Measure the start, then the calls, as two jobs: no other job may hold the device while the artifact starts."""
    name = f"{task.plan.key}-artifact-{process}"
    asked = FreshTask(bench.workload, task.plan, task.artifact)
    start = bench.reply_to(asked, limits_of(bench, limit_s), FreshStart, cache=f"{name}-start")
    if isinstance(start, Failure):
        return start
    left_s = max(1.0, limit_s - sum(start.phases_s.values()))
    called = bench.reply_to(task, limits_of(bench, left_s), Measurement, cache=f"{name}-calls")
    if isinstance(called, Failure):
        return called
    return replace(called, startup=start.startup, phases_s={**called.phases_s, **start.phases_s})
