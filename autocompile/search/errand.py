"""A task under way: submitted, awaited, charged to the budget, with a reply of the expected type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from autocompile.core.job import (
    BatchProbe,
    BatchTask,
    CompiledAhead,
    CompileTask,
    Exported,
    FreshStart,
    FreshTask,
    Limits,
    LoaderTask,
    Packed,
    PackTask,
    ProfileTask,
    Reply,
    Task,
    TrialTask,
)
from autocompile.core.outcome import Failure, Measurement, Toolchain
from autocompile.core.pipeline import Loaders
from autocompile.core.profile import Profile
from autocompile.core.runner import PendingReply, Runner
from autocompile.core.workload import Workload
from autocompile.runtime.catalogue import kind_of

ReplyT = TypeVar(
    "ReplyT",
    bound=Measurement
    | Profile
    | Loaders
    | BatchProbe
    | Workload
    | Toolchain
    | CompiledAhead
    | Packed
    | Exported
    | FreshStart,
)
# Books the seconds of a task's phases, its span on the run's clock, and its pauses; see `search.ledger.Ledger.charge`.
Span = tuple[float, float]
Charge = Callable[[Mapping[str, float], Span, Sequence[Span]], None]

# These tasks measure times, which other tasks at the same time would change.
_TIMED = (ProfileTask, LoaderTask, BatchTask, TrialTask, FreshTask)


class Errand(Generic[ReplyT]):
    """A task under way, and the type of its expected reply."""

    def __init__(self, pending: PendingReply, expected: type[ReplyT], charge: Charge) -> None:
        self.pending = pending
        self._expected = expected
        self._charge = charge
        self._is_charged = False

    def reply(self) -> ReplyT | Failure:
        """Wait for the reply, and charge its time once. If waiting is interrupted, cancel the task.

        Raises what `PendingReply.answer` raises.
        """
        try:
            reply: Reply = self.pending.answer()
        except BaseException:
            self.pending.cancel()
            raise
        assert isinstance(reply, self._expected | Failure), f"{type(reply).__name__} is no answer to this task"
        if not self._is_charged:
            self._is_charged = True
            self._charge(reply.phases_s, self.pending.span_s, self.pending.pauses_s)
        return reply


def submit(
    runner: Runner,
    task: Task,
    limits: Limits,
    expected: type[ReplyT],
    *,
    cache: str,
    charge: Charge,
    alone: bool,
    machine: int = 0,
) -> Errand[ReplyT]:
    """Submit a task to one of the machines; it has its device to itself if it is timed, or if `alone` is set.

    Raises what `Runner.submit` raises.
    """
    pending = runner.submit(task, limits, cache=cache, exclusive=alone or _is_timed(task), machine=machine)
    return Errand(pending, expected, charge)


def _is_timed(task: Task) -> bool:
    """Whether the result depends on a time: one that the task measures, or one by which the compiler chooses."""
    if isinstance(task, CompileTask | PackTask):
        return kind_of(task.plan).times_variants(task.plan)
    return isinstance(task, _TIMED)


def reply_to(runner: Runner, task: Task, limits: Limits, expected: type[ReplyT], *, cache: str) -> ReplyT | Failure:
    """Run a task to its end where no ledger is kept. Raises what `PendingReply.answer` raises."""
    return submit(runner, task, limits, expected, cache=cache, charge=_unbooked, alone=False).reply()


def _unbooked(_phases_s: Mapping[str, float], _span_s: Span, _pauses_s: Sequence[Span]) -> None:
    """Charge nothing; in a run, the time counts as overhead."""
