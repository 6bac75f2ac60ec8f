"""Tasks that take turns on lanes: a timed task runs alone on its device, compiling tasks run at the same time.

Waiting for one turn drives all turns.
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

# How often to check on several running children. For a single child, the parent sleeps until there is an event.
_GLANCE_S = 0.05
# How often to check on an exclusive child before its timing: it may wait for a lock that a paused child holds.
_LOOK_S = 0.5
_TIMED_PHASE = "timing"

# What happens to the other tasks when an exclusive task runs: they are paused, or they are waited for, or they go on
# where that does not disturb the timing (compiling on the CPU while a GPU is timed).
Beside = Literal["pause", "wait", "go on"]


class Turns:
    """Starts turns in the order in which they were added, as soon as there is a lane for them.

    Exclusive turns run on the lane `timing`, all others on the lanes `compiling`. A single lane serves as both.
    There is no background thread: events are handled and limits are enforced only while the caller waits for a turn or
    checks whether it is done. `prepare` sets up what a job needs before it starts. `on_phase` is called with the phase
    of the exclusive child, or of the only child. `on_disturbance` is called if the others disturbed a timing. `beside`:
    see `Beside`.
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
        """All lanes; the lane for timing comes first."""
        return self._timing, *(lane for lane in self._compiling if lane is not self._timing)

    def add(self, job: Job, *, exclusive: bool) -> Turn:
        """Add a turn for this job. Raises RunnerError if its child should start now but cannot."""
        with self._leaving_nothing():
            turn = Turn(self, job, exclusive=exclusive)
            self._waiting.append(turn)
            self._begin_waiting()
            if isinstance(turn.outcome, RunnerError):
                raise turn.outcome
        return turn

    def wait_for(self, turns: list[Turn]) -> Turn:
        """Wait until one of these turns is done, and return the first. If it raises, no child is left running."""
        with self._leaving_nothing():
            while all(turn.outcome is None for turn in turns):
                self._follow(waiting=True)
        return min((turn for turn in turns if turn.outcome is not None), key=lambda turn: turn.ended)

    def look(self) -> None:
        """Handle new events, and end children that are beyond a limit, without waiting."""
        with self._leaving_nothing():
            while self._busy and self._follow(waiting=False):
                pass

    def cancel(self, turn: Turn) -> None:
        """End this turn, unless it has already ended, and continue with the others."""
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
        """Kill all children and end all turns, without waiting."""
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
        """Kill all children, including paused ones, if the body raises."""
        try:
            yield
        except BaseException:
            self.clear()
            raise

    def _begin_waiting(self) -> None:
        """Start the waiting turns that have a free lane, and resume paused children if no exclusive task is running."""
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
        """Start a turn's child. If it cannot be started, the fault becomes the outcome of the turn."""
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
        """Handle an event of one child, and return whether there was one."""
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
        """Whether a child is being timed now. Then all other processes sleep, including this one."""
        timed = self._timed
        return timed is not None and timed.course is not None and timed.course.phase == _TIMED_PHASE

    def _let_go_on(self) -> None:
        """Resume the paused children until the exclusive child's next phase: it may wait for a lock that one holds."""
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
        """Wait up to `timeout_s` for an event of the lane's child, handle it, and return whether there was one."""
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
        if event.get("lost") and not turn.was_lost:
            turn.was_lost = True
            lane.leave()
            self._repeat(turn, event["at"], suffix="again")
            self._begin_waiting()
        elif "exited" in event:
            self._finish(lane, turn, _reply(turn, course, int(event["exited"]), event["at"]), event["at"])
        elif "phase" in event:
            course.enter(str(event["phase"]), event["at"])
            if turn.exclusive and self.beside == "pause":
                self._pause_others()
            if turn.exclusive or len(self._busy) == 1:
                self._on_phase(str(event["phase"]))

    def _finish(self, lane: Lane, turn: Turn, outcome: Reply | RunnerError, at: float) -> None:
        """Store the outcome of a turn, and start the turns that wait for its lane."""
        lane.leave()
        if turn.had_company and _was_disturbed(turn, outcome):
            self._again(turn, at)
        else:
            turn.outcome, turn.ended = outcome, at
        self._begin_waiting()

    def _again(self, turn: Turn, at: float) -> None:
        """Repeat a disturbed timing. From now on, no other child runs during a timing."""
        if self.beside == "go on":
            self._on_disturbance()
        self.beside = "pause" if can_pause() else "wait"
        self._repeat(turn, at, suffix="alone")

    def _repeat(self, turn: Turn, at: float, *, suffix: str) -> None:
        """Run a turn once more, in a new directory, before all other turns."""
        assert turn.course is not None
        left_s = max(1.0, turn.course.began + turn.job.limits.total_s - at)
        limits = replace(turn.job.limits, total_s=left_s)
        turn.job = replace(turn.job, directory=f"{turn.job.directory}-{suffix}", limits=limits)
        turn.course, turn.had_company = None, False
        self._waiting.appendleft(turn)


def _reply(turn: Turn, course: Course, code: int | None, at: float) -> Reply:
    ending = course.end(code, at)
    return course.without_pauses(reply_left(Path(turn.job.directory), ending))


def _was_disturbed(turn: Turn, outcome: Reply | RunnerError) -> bool:
    """Whether a timing reports that other processes disturbed it."""
    return turn.exclusive and isinstance(outcome, Measurement) and outcome.contamination.noisy
