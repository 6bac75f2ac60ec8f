"""Turn recorded processes into trials, so that the current judge can judge them again."""

import math
from collections.abc import Sequence

from msgspec.structs import replace

from autocompile.core.candidate import Candidate
from autocompile.core.estimate import Estimate
from autocompile.core.goal import Goal
from autocompile.core.outcome import Accuracy, Contamination, Counters, Latency, Measurement, Startup
from autocompile.core.plan import Plan
from autocompile.core.trial import Origin, Trial
from autocompile.search.finals import unsettled
from autocompile.search.judge.contender import beats, contenders_of
from autocompile.search.judge.scatter import scatter_of
from autocompile.search.judge.verdict import Verdict, judge

CALLS = 10**6
CHANGES = {
    "baseline": 0,
    "search": 1,
    "inductor": 1,
    "inductor freezing": 2,
    "inductor channels_last": 2,
    "eager channels_last": 1,
}
_LATENCY = Latency(1.0, 1.0, 1.0, 1.0, 1.0, 100)
_BLANK = Measurement(
    ratio=Estimate(1.0, 1.0, 1.0),
    latency=_LATENCY,
    baseline=_LATENCY,
    startup=Startup(0.0, 0.0, 0.0, 0.0),
    accuracy=Accuracy(0.0, 0.0, 1.0, 0.0, "", ""),
    counters=Counters(),
    contamination=Contamination(0, 0, 0.0, 0.0, 0, noisy=False),
    peak_memory_bytes=0,
)


def trial_of(
    number: int, label: str, origin: Origin, changes: int, processes: Sequence[Sequence[float]], *, noisy: bool = False
) -> Trial:
    """Return a trial whose processes had these log ratios, each with its interval; its start-up time is zero.

    The fourth number of a process is the log of eager's milliseconds. Without it, eager is taken to be the same always.
    """
    blank = replace(_BLANK, contamination=replace(_BLANK.contamination, noisy=noisy))
    found = [_process(blank, logs) for logs in processes]
    return Trial(number, label, Candidate({}), Plan(threads=number), origin, found[0], changes, tuple(found))


def _process(blank: Measurement, logs: Sequence[float]) -> Measurement:
    ratio, eager = Estimate(*(math.exp(log) for log in logs[:3])), math.exp(sum(logs[3:]))
    return replace(blank, ratio=ratio, baseline=replace(_LATENCY, mean_ms=eager))


def judged(processes: dict[str, Sequence[Sequence[float]]], changes: dict[str, int], *, noisy: bool = False) -> Verdict:
    """Return the verdict over candidates by label. The label `baseline` marks the baseline; `noisy`: a noisy host."""
    trials = [
        trial_of(number, label, "baseline" if label == "baseline" else "search", changes[label], found, noisy=noisy)
        for number, (label, found) in enumerate(processes.items())
    ]
    contenders = contenders_of(trials, Goal(calls=CALLS))
    return judge(contenders, CALLS, scatter_of(trials).margin(max(c.processes for c in contenders)))


def claims(verdict: Verdict) -> list[str]:
    """Return the labels of the candidates that the winner is reported to beat."""
    return [c.label for c in verdict.ranking if c is not verdict.winner and beats(verdict.winner, c, CALLS)]


def still_tied(processes: dict[str, Sequence[Sequence[float]]], changes: dict[str, int]) -> list[str]:
    """Return the candidates that finals would measure in further processes."""
    return [c.label for c in unsettled(judged(processes, changes), CALLS)]
