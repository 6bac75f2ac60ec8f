"""Tasks that take turns on lanes: what is timed runs alone on its device, what compiles runs side by side.

Whoever waits for one turn drives all of them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from autocompile.core.errors import RunnerError
from autocompile.core.job import Job, Reply
from autocompile.core.outcome import Measurement
from autocompile.runner.course import Course
from autocompile.runner.ending import reply_left
from autocompile.runner.lane import Lane
from autocompile.runner.launchers import Event
from autocompile.runner.pausing import can_pause
from autocompile.runner.turn import Turn

# How often several children that run side by side are looked at. A single one is waited for asleep.
_GLANCE_S = 0.05
# How often a child that is to be alone is looked at, until it is timed: it may wait for a lock that a paused one holds.
_LOOK_S = 0.5
_TIMED_PHASE = "timing"

# What the others do while a task runs that is to be alone: they are paused, or are waited for, or go on where that does
# the timing no harm, as on a CPU beside a GPU.
Beside = Literal["pause", "wait", "go on"]


class Turns:
    """Turns in the order in which they were asked for, as soon as there is a lane for them.

    Those that are to be alone run on the lane `timing`, all others on `compiling`; with a single lane, that is the same
    one. Nothing happens by itself: events are heard and limits are kept by whoever waits for a turn or looks whether it
    is done. `prepare` puts what a job needs in place when its turn has come; `on_phase` hears what the child is doing
    that is to be alone, or the only one; `on_disturbance` hears if the others harmed a timing. `beside`: see `Beside`.
    """

    def __init__(
        self,
        timing: Lane,
        compiling: Sequence[Lane],
        *,
        prepare: Callable[[Job], None],
        on_phase: Callable[[str], None],
        on_disturbance: Callable[[], None],
    ) -> None:
        self.beside: Beside = "pause" if can_pause() else "wait"
        self._timing = timing
        self._compiling = tuple(compiling)
        self._prepare = prepare
        self._on_phase = on_phase
        self._on_disturbance = on_disturbance
        self._waiting: deque[Turn] = deque()

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """All of them, the one for timing first."""
        return self._timing, *(lane for lane in self._compiling if lane is not self._timing)

    def add(self, job: Job, *, exclusive: bool) -> Turn:
        """A turn for this job. Raises RunnerError if its child cannot be started now."""
        with self._leaving_nothing():
            turn = Turn(self, job, exclusive=exclusive)
            self._waiting.append(turn)
            self._begin_waiting()
            if isinstance(turn.outcome, RunnerError):
                raise turn.outcome
        return turn

    def wait_for(self, turns: list[Turn]) -> Turn:
        """Wait until one of these is done, and tell which was first. Leaves nothing running if it raises."""
        with self._leaving_nothing():
            while all(turn.outcome is None for turn in turns):
                self._follow(waiting=True)
        return min((turn for turn in turns if turn.outcome is not None), key=lambda turn: turn.ended)

    def look(self) -> None:
        """Hear what has happened since, and end who is beyond a limit, without waiting."""
        with self._leaving_nothing():
            while self._busy and self._follow(waiting=False):
                pass

    def cancel(self, turn: Turn) -> None:
        """End this turn, if it has not ended, and go on with the others."""
        if turn.outcome is not None:
            return
        fault = RunnerError("the task was cancelled")
        if turn in self._waiting:
            self._waiting.remove(turn)
            turn.outcome, turn.ended = fault, time.monotonic()
            return
        with self._leaving_nothing():
            lane = next(lane for lane in self.lanes if lane.turn is turn)
            lane.kill()
            self._finish(lane, turn, fault, time.monotonic())

    def clear(self) -> None:
        """End all children, and forget all turns; nothing is waited for."""
        unended = list(self._waiting)
        for lane in self._busy:
            assert lane.turn is not None
            unended.append(lane.turn)
            lane.launcher.kill()
            lane.leave()
        for turn in unended:
            turn.outcome, turn.ended = RunnerError("the task was ended with all others"), time.monotonic()
        self._waiting.clear()

    @property
    def _busy(self) -> list[Lane]:
        return [lane for lane in self.lanes if lane.turn is not None]

    @contextmanager
    def _leaving_nothing(self) -> Iterator[None]:
        """Whatever is raised within leaves no child running, paused or not."""
        try:
            yield
        except BaseException:
            self.clear()
            raise

    def _begin_waiting(self) -> None:
        """Start whoever has a lane now, and let those go on that nobody needs paused any more."""
        for turn in tuple(self._waiting):
            lane = self._lane_for(turn)
            if lane is not None:
                self._waiting.remove(turn)
                self._begin(lane, turn)
        if self._timed is None:
            for lane in self._busy:
                lane.resume()

    def _lane_for(self, turn: Turn) -> Lane | None:
        if turn.exclusive:
            may_start = self.beside != "wait" or not self._busy
            return self._timing if self._timing.turn is None and may_start else None
        if self.beside != "go on" and (self._timed or (self.beside == "wait" and self._is_timing_wanted)):
            return None
        return next((lane for lane in self._compiling if lane.turn is None), None)

    @property
    def _timed(self) -> Turn | None:
        turn = self._timing.turn
        return turn if turn is not None and turn.exclusive else None

    @property
    def _is_timing_wanted(self) -> bool:
        return any(turn.exclusive for turn in self._waiting)

    def _begin(self, lane: Lane, turn: Turn) -> None:
        """Start a turn's child. One that cannot be started is told to whom it concerns."""
        if turn.exclusive and self.beside == "pause":
            self._pause_others()
        try:
            self._prepare(turn.job)
            lane.start(turn)
        except RunnerError as fault:
            turn.outcome, turn.ended = fault, time.monotonic()
            return
        awake = [other.turn for other in self._busy if not other.is_paused and other.turn is not None]
        if len(awake) > 1:
            for one in awake:
                one.had_company = True

    def _follow(self, *, waiting: bool) -> bool:
        """Whether there was something new of a child."""
        busy = self._busy
        if any(self._hear(lane, 0.0) for lane in busy):
            return True
        if not waiting:
            return False
        awake = [lane for lane in busy if not lane.is_paused]
        left_s = max(0.0, min(self._deadline(lane) for lane in busy) - time.monotonic())
        if len(awake) > 1:
            return self._hear(awake[0], min(left_s, _GLANCE_S))
        if len(busy) == 1 or self._is_timing():
            return self._hear(awake[0], left_s)
        if awake[0].is_stuck():
            self._let_go_on()
        return self._hear(awake[0], min(left_s, _LOOK_S))

    def _is_timing(self) -> bool:
        """Whether a child is timed now: all sleep, this process among them."""
        timed = self._timed
        return timed is not None and timed.course is not None and timed.course.phase == _TIMED_PHASE

    def _let_go_on(self) -> None:
        """Until the next phase of what is to be alone, which waits for what one of the others holds, as a lock."""
        for lane in self._busy:
            lane.resume()

    def _pause_others(self) -> None:
        for lane in self._busy:
            if lane is not self._timing:
                lane.pause()

    @staticmethod
    def _deadline(lane: Lane) -> float:
        assert lane.turn is not None
        assert lane.turn.course is not None
        return lane.turn.course.deadline

    def _hear(self, lane: Lane, timeout_s: float) -> bool:
        """Whether there was something new of a lane's child, which is waited for so long."""
        turn = lane.turn
        assert turn is not None
        assert turn.course is not None
        event = lane.launcher.next_event(timeout_s)
        if event is not None:
            self._handle(lane, turn, turn.course, event)
        elif time.monotonic() < turn.course.deadline:
            return False
        else:
            ended = time.monotonic()
            lane.kill()
            self._finish(lane, turn, _reply(turn, turn.course, None, ended), ended)
        return True

    def _handle(self, lane: Lane, turn: Turn, course: Course, event: Event) -> None:
        if "exited" in event:
            self._finish(lane, turn, _reply(turn, course, int(event["exited"]), event["at"]), event["at"])
        elif "phase" in event:
            course.enter(str(event["phase"]), event["at"])
            if turn.exclusive and self.beside == "pause":
                self._pause_others()
            if turn.exclusive or len(self._busy) == 1:
                self._on_phase(str(event["phase"]))

    def _finish(self, lane: Lane, turn: Turn, outcome: Reply | RunnerError, at: float) -> None:
        """Keep what came of a turn, and let those begin that wait for its lane."""
        lane.leave()
        if turn.had_company and _was_disturbed(turn, outcome):
            self._again(turn, at)
        else:
            turn.outcome, turn.ended = outcome, at
        self._begin_waiting()

    def _again(self, turn: Turn, at: float) -> None:
        """Time once more what was disturbed, before all others; from now on nothing runs beside what is timed."""
        assert turn.course is not None
        if self.beside == "go on":
            self._on_disturbance()
        self.beside = "pause" if can_pause() else "wait"
        left_s = max(1.0, turn.course.began + turn.job.limits.total_s - at)
        limits = replace(turn.job.limits, total_s=left_s)
        turn.job = replace(turn.job, directory=f"{turn.job.directory}-alone", limits=limits)
        turn.course, turn.had_company = None, False
        self._waiting.appendleft(turn)


def _reply(turn: Turn, course: Course, code: int | None, at: float) -> Reply:
    ending = course.end(code, at)
    return course.without_pauses(reply_left(Path(turn.job.directory), ending))


def _was_disturbed(turn: Turn, outcome: Reply | RunnerError) -> bool:
    """Whether a timing says itself that others took what it needed."""
    return turn.exclusive and isinstance(outcome, Measurement) and outcome.contamination.noisy
