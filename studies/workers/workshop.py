"""Replay a recording with several workers: compilers and devices. Only recorded trials advance the clock."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from autocompile.core.job import Limits, Reply, Task, TrialTask
from autocompile.runner.replay import Recording, ReplayRunner
from autocompile.runner.simulated import VirtualClock
from autocompile.runtime.catalogue import kind_of

_COMPILED_BEFORE = ("start", "load", "build", "compile")
# Seconds for a child process to start. It then compiles again, from the cache of the process that compiled before.
_START_S = 1.0
# How much a trial's time scatters around the recorded time: the standard deviation of the logarithm.
_SCATTER = 0.15


@dataclass(eq=False)
class Turn:
    """A task that passes through stages; each stage takes some seconds in one of the pools."""

    reply: Reply
    plan_key: str
    stages: deque[tuple[Pool, float]]
    workshop: Workshop
    is_compiled: bool
    began: float | None = None
    ended: float | None = None

    def answer(self) -> Reply:
        self.workshop.first_done([self])
        return self.reply

    def is_done(self) -> bool:
        return self.ended is not None

    def cancel(self) -> None:
        raise NotImplementedError("nothing is cancelled in a replay")

    @property
    def span_s(self) -> tuple[float, float]:
        assert self.began is not None
        assert self.ended is not None
        return self.began, self.ended

    @property
    def pauses_s(self) -> tuple[tuple[float, float], ...]:
        return ()


@dataclass(eq=False)
class Pool:
    """A pool of places, for which tasks wait; those that do not compile come first. `busy_s` sums over all places."""

    places: int
    waiting: list[tuple[bool, int, Turn, float]] = field(default_factory=list)
    busy_s: float = 0.0


class Workshop(ReplayRunner):
    """A replay runner with several workers: each of the `devices` times one candidate at a time.

    With `compilers`, candidates are compiled there before they are timed. Without compilers, a device compiles and
    times a trial in one go. `seed` determines how much longer or shorter than recorded each trial takes.
    """

    def __init__(self, recording: Recording, clock: VirtualClock, *, devices: int, compilers: int, seed: int) -> None:
        super().__init__(recording, clock, lanes=devices + compilers)
        self.devices, self.compilers = Pool(devices), Pool(compilers)
        self._seed, self._compiles_ahead = seed, compilers > 0
        self._running: list[tuple[float, int, Turn, Pool]] = []
        self._count = 0

    def submit(self, task: Task, limits: Limits, *, cache: str, exclusive: bool, machine: int = 0) -> Turn:  # type: ignore[override]  # noqa: ARG002
        reply, plan_key = self._recorded(task, limits)
        if isinstance(task, TrialTask):
            scale = random.Random(f"{self._seed} {plan_key}").lognormvariate(0.0, _SCATTER)
            reply = replace(reply, phases_s={phase: scale * s for phase, s in reply.phases_s.items()})
        is_compiled = isinstance(task, TrialTask) and bool(kind_of(task.plan).compiles)
        turn = Turn(reply, plan_key, deque(self._stages(task, reply)), self, is_compiled)
        self._go_on(turn)
        return turn

    def first_done(self, pending: Sequence[Turn]) -> Turn:  # type: ignore[override]
        while all(turn.ended is None for turn in pending):
            ends, _count, turn, pool = heapq.heappop(self._running)
            self.clock.now = ends
            pool.places += 1
            self._go_on(turn)
            while pool.waiting and pool.places:
                _is_compiled, _waiting, following, seconds = heapq.heappop(pool.waiting)
                self._run(following, pool, seconds)
        return min((turn for turn in pending if turn.ended is not None), key=lambda turn: turn.ended or 0.0)

    def _stages(self, task: Task, reply: Reply) -> list[tuple[Pool, float]]:
        total_s = sum(reply.phases_s.values())
        if not self._compiles_ahead or not isinstance(task, TrialTask) or not kind_of(task.plan).compiles:
            return [(self.devices, total_s)]
        before_s = sum(reply.phases_s.get(phase, 0.0) for phase in _COMPILED_BEFORE)
        again_s = kind_of(task.plan).warm_s(reply.phases_s.get("compile", 0.0))
        again_s += _START_S + reply.phases_s.get("load", 0.0)
        if total_s == before_s:  # the trial failed while it was compiled
            return [(self.compilers, total_s)]
        return [(self.compilers, before_s), (self.devices, again_s + total_s - before_s)]

    def _go_on(self, turn: Turn) -> None:
        if not turn.stages:
            turn.ended = self.clock.now
            if turn.plan_key:
                self.timeline.append((self.clock.now, turn.plan_key))
            return
        pool, seconds = turn.stages.popleft()
        if pool.places:
            self._run(turn, pool, seconds)
        else:
            self._count += 1
            heapq.heappush(pool.waiting, (turn.is_compiled, self._count, turn, seconds))

    def _run(self, turn: Turn, pool: Pool, seconds: float) -> None:
        turn.began = self.clock.now if turn.began is None else turn.began
        pool.places -= 1
        pool.busy_s += seconds
        self._count += 1
        heapq.heappush(self._running, (self.clock.now + seconds, self._count, turn, pool))
