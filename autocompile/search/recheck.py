"""A recommendation, measured again: whether it is still correct on this host, and still as fast."""

from __future__ import annotations

import math
from typing import Literal

from autocompile.core.candidate import Candidate
from autocompile.core.document import Document
from autocompile.core.estimate import Estimate
from autocompile.core.job import Limits
from autocompile.core.outcome import Failure, Measurement
from autocompile.core.serde import Record
from autocompile.core.trial import Trial
from autocompile.search.bench import Bench
from autocompile.search.session import prepare_toolchain, take_profile
from autocompile.search.spread import ratio_of, spread_of

_PROCESSES = 3


class Recheck(Record, frozen=True):
    """What came of it: `then` and `now` are speed-ups with intervals; `changes` are what differs on the host.

    `verdict`: `good`, `regression` (slower than then, beyond the noise of both), or `wrong` (with `fault`).
    """

    label: str
    verdict: Literal["good", "regression", "wrong"]
    then: Estimate
    now: Estimate | None
    fault: str
    changes: tuple[str, ...]
    noisy: bool


def recheck(bench: Bench, document: Document) -> Recheck:
    """Measure the recommended plan in fresh processes, and compare with what was recorded.

    Raises BudgetTooSmall if not one process fits, UsageError if the model fails.
    """
    prepare_toolchain(bench)
    take_profile(bench)
    then = document.winner.speedup
    assert then is not None
    measured: list[Measurement] = []
    for round_number in range(_PROCESSES):
        if measured and bench.ledger.left_s() < sum(measured[-1].phases_s.values()):
            break
        bench.listener.on_task(f"process {round_number + 1} of {_PROCESSES}: {document.winner.label}")
        task = bench.trial_task(document.winner.plan, bench.settings.strategy.finals.timing, round_number)
        limits = Limits(total_s=max(1.0, bench.ledger.left_s()), memory_bytes=bench.memory_limit())
        reply = bench.runner.run(task, limits, cache="winner")
        assert isinstance(reply, Measurement | Failure)
        bench.ledger.charge(reply.phases_s)
        if isinstance(reply, Failure):
            if reply.kind == "timeout":
                break
            return _outcome(
                bench, document, then, None, f"{reply.kind.replace('_', ' ')}: {reply.message}", noisy=False
            )
        measured.append(reply)
    if not measured:
        raise bench.too_small()
    noisy = any(m.contamination.noisy for m in measured)
    return _outcome(bench, document, then, _speedup(document, measured), "", noisy=noisy)


def _speedup(document: Document, measured: list[Measurement]) -> Estimate:
    winner = document.winner
    trial = Trial(
        number=0,
        label=winner.label,
        candidate=Candidate(winner.config),
        plan=winner.plan,
        origin="search",
        outcome=measured[0],
        changes=0,
        finals=tuple(measured[1:]),
    )
    return ratio_of(trial, spread_of([trial])).inverse()


def _outcome(
    bench: Bench, document: Document, then: Estimate, now: Estimate | None, fault: str, *, noisy: bool
) -> Recheck:
    verdict: Literal["good", "regression", "wrong"] = "wrong" if now is None else "good"
    if now is not None:
        open_ = math.hypot(then.relative_halfwidth, now.relative_halfwidth)
        verdict = "regression" if math.log(then.value / now.value) > open_ else "good"
    return Recheck(document.winner.label, verdict, then, now, fault, _changes(bench, document), noisy)


def _changes(bench: Bench, document: Document) -> tuple[str, ...]:
    then, now = document.environment, bench.environment
    fields = [name for name in then.__struct_fields__ if getattr(then, name) != getattr(now, name)]
    return tuple(f"{name}: {getattr(then, name)} then, {getattr(now, name)} now" for name in fields)
