"""Which batch sizes are worth a search: those that fit into memory and take little a sample, as eager shows."""

from __future__ import annotations

from msgspec.structs import replace

from autocompile.core.errors import InvalidValue
from autocompile.core.job import BatchPoint, BatchProbe, BatchTask, Limits
from autocompile.core.outcome import Failure
from autocompile.core.units import format_ms
from autocompile.search.choose.batch_limits import beyond_limit
from autocompile.search.run import Bench

# Of the sizes that were found: those within this of the best a sample, and no more than so many of them.
_NEAR, _MOST = 1.5, 4
_ATTEMPTS = 4
# Of the budget, for each attempt: the probe itself ends in time.
_SHARE = 0.1


def find_batches(bench: Bench) -> dict[int, float]:
    """Sizes that a search may try, the most promising first, each with the milliseconds that a call takes in eager.

    Without the given one; none if the goal keeps the batch. The batch axis is proved, and sizes are probed, in eager;
    the journal keeps what was found.

    Raises InvalidValue if sizes were asked for, and the samples of a call are not independent.
    """
    goal = bench.settings.goal
    if goal.batch == "fixed":
        return {}
    bench.listener.on_task("batch sizes in eager")
    probe = _probed(bench)
    if isinstance(probe, Failure):
        bench.ledger.decide("skipped", "batch", f"the probe failed: {probe.message}")
        return {}
    if probe.problem:
        if goal.batch_sizes:
            raise InvalidValue(probe.problem, where="batch", remedy="take the batch fixed")
        bench.ledger.decide("narrowed", "batch", f"kept at what was given: {probe.problem}")
        return {}
    for point in probe.points:
        result = point.problem or f"{format_ms(point.sample_ms or 0)} a sample in eager"
        bench.ledger.decide("skipped" if point.problem else "noted", f"batch={point.size}", result)
    return {size: size * sample_ms for size, sample_ms in _worth_trying(bench, probe).items()}


def _probed(bench: Bench) -> BatchProbe | Failure:
    """The probe; where the system ended it for want of memory, again below that size."""
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
    """Milliseconds a sample by size; where a call's latency is limited, sizes that keep the limit in eager first."""
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
