"""Batch sizes that are worth a search: they fit into memory, and take little time per sample in eager."""

from __future__ import annotations

from msgspec.structs import replace

from autocompile.core.errors import InvalidValue
from autocompile.core.job import BatchPoint, BatchProbe, BatchTask, Limits
from autocompile.core.outcome import Failure
from autocompile.core.units import format_ms
from autocompile.search.choose.batch_limits import beyond_limit
from autocompile.search.run import Bench

# A size is tried if its time per sample is within this factor of the best; at most this many sizes are tried.
_NEAR, _MOST = 1.5, 4
_ATTEMPTS = 4
# The share of the budget for each attempt; the probe itself ends in time.
_SHARE = 0.1


def find_batches(bench: Bench) -> dict[int, float]:
    """Return the sizes that a search may try, the most promising first, each with eager's milliseconds per call.

    The given size is not among them; there are none if the goal keeps the batch. The batch axis is verified and sizes
    are probed in eager; the journal records the results.

    Raises InvalidValue if the goal names sizes, but the samples of a call are not independent.
    """
    goal = bench.settings.goal
    if goal.batch == "fixed":
        return {}
    bench.listener.on_task("batch sizes in eager")
    probe = _probed(bench)
    if isinstance(probe, Failure):
        bench.ledger.decide("skipped", "batch", f"the probe of batch sizes failed: {probe.message}")
        return {}
    if probe.problem:
        if goal.batch_sizes:
            raise InvalidValue(probe.problem, where="batch", remedy="keep the batch fixed")
        bench.ledger.decide("narrowed", "batch", f"kept as given: {probe.problem}")
        return {}
    for point in probe.points:
        result = point.problem or f"{format_ms(point.sample_ms or 0)} a sample in eager"
        bench.ledger.decide("skipped" if point.problem else "noted", f"batch={point.size}", result)
    return {size: size * sample_ms for size, sample_ms in _worth_trying(bench, probe).items()}


def _probed(bench: Bench) -> BatchProbe | Failure:
    """Run the probe. If it was ended because memory ran out, run it again below that size."""
    task = BatchTask(bench.workload, bench.settings.goal.batch_sizes, below=0)
    lost: tuple[BatchPoint, ...] = ()
    for _ in range(_ATTEMPTS):
        limits = Limits(total_s=_SHARE * bench.ledger.budget_s, memory_bytes=bench.memory_limit())
        reply = bench.reply_to(task, limits, BatchProbe, cache="profile")
        if isinstance(reply, BatchProbe):
            return replace(reply, points=(*reply.points, *lost))
        failure, size = reply, reply.stage.removeprefix("batch ")
        if not size.isdigit() or reply.kind == "timeout":
            break
        task = replace(task, below=int(size))
        lost = (BatchPoint(int(size), None, reply.message),)
    return failure


def _worth_trying(bench: Bench, probe: BatchProbe) -> dict[int, float]:
    """Return the milliseconds per sample by size. Sizes that meet a limit on latency in eager come first."""
    fitting = {p.size: p.sample_ms for p in probe.points if p.sample_ms is not None and p.size != probe.given}
    goal = bench.settings.goal
    beyond = beyond_limit(goal, {size: size * sample_ms for size, sample_ms in fitting.items()}, ())
    for size in list(fitting):
        if (size, True) in beyond:
            bench.ledger.decide("narrowed", f"batch={size}", beyond[size, True])
            del fitting[size]
    ordered = sorted(fitting, key=lambda size: ((size, False) in beyond, fitting[size]))
    if not goal.batch_sizes and ordered:
        most_ms = _NEAR * fitting[ordered[0]]
        ordered = [size for size in ordered if fitting[size] <= most_ms][:_MOST]
    return {size: fitting[size] for size in ordered}
