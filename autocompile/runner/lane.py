"""Tasks that take turns on one launcher, a child at a time; whoever waits for one drives all of them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from autocompile.core.errors import RunnerError
from autocompile.core.job import Job, Reply
from autocompile.core.protocol import JOB_FILE
from autocompile.core.serde import to_json
from autocompile.runner.ending import Ending, reply_left
from autocompile.runner.launchers import Event, Launcher

# How long a killed child may take until it is seen to have ended.
_DYING_S = 10.0


class Course:
    """What a running child was heard of: its phase now, and the seconds of those before."""

    def __init__(self, job: Job) -> None:
        self.began = self._phase_began = time.monotonic()
        self._limits = job.limits
        self._phase = "start"
        self._seconds: dict[str, float] = {}

    @property
    def deadline(self) -> float:
        """When the child is to be killed."""
        deadline = self.began + self._limits.total_s
        if self._phase == "compile" and self._limits.compile_s:
            left_s = self._limits.compile_s - self._seconds.get("compile", 0.0)
            deadline = min(deadline, self._phase_began + left_s)
        return deadline

    def enter(self, phase: str, at: float) -> None:
        """The child has entered a phase."""
        self._leave_phase(at)
        self._phase = phase

    def end(self, code: int | None, at: float) -> Ending:
        """The child has ended."""
        self._leave_phase(at)
        return Ending(code, self._phase, self._seconds, at - self.began)

    def _leave_phase(self, at: float) -> None:
        self._seconds[self._phase] = self._seconds.get(self._phase, 0.0) + max(0.0, at - self._phase_began)
        self._phase_began = at


class Turn:
    """A task's turn on a lane: a `core.runner.PendingReply`."""

    def __init__(self, lane: Lane, job: Job) -> None:
        self.job = job
        self.course: Course | None = None
        self.outcome: Reply | RunnerError | None = None
        self.ended = 0.0
        self._lane = lane

    def answer(self) -> Reply:
        self._lane.wait_for([self])
        assert self.outcome is not None
        if isinstance(self.outcome, RunnerError):
            raise self.outcome
        return self.outcome

    def is_done(self) -> bool:
        self._lane.look()
        return self.outcome is not None

    def cancel(self) -> None:
        self._lane.cancel(self)

    @property
    def span_s(self) -> tuple[float, float]:
        assert self.outcome is not None
        return (self.course.began if self.course else self.ended), self.ended


class Lane:
    """Turns in the order in which they were asked for. The first one's child runs, all others wait.

    Nothing happens by itself: events are heard and limits are kept by whoever waits for a turn or looks whether it is
    done. `prepare` puts what a job needs in place, when its turn has come; `on_phase` hears what the child is doing.
    """

    def __init__(self, launcher: Launcher, *, prepare: Callable[[Job], None], on_phase: Callable[[str], None]) -> None:
        self._launcher = launcher
        self._prepare = prepare
        self._on_phase = on_phase
        self._turns: deque[Turn] = deque()

    def add(self, job: Job) -> Turn:
        """A turn for this job, after all others. Raises RunnerError if its child cannot be started now."""
        with self._leaving_nothing():
            turn = Turn(self, job)
            self._turns.append(turn)
            if len(self._turns) == 1:
                self._start(turn)
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
            while self._turns and self._follow(waiting=False):
                pass

    def cancel(self, turn: Turn) -> None:
        """End this turn, if it has not ended, and go on with the others."""
        if turn.outcome is not None:
            return
        fault = RunnerError("the task was cancelled")
        if turn is not self._turns[0]:
            self._turns.remove(turn)
            turn.outcome, turn.ended = fault, time.monotonic()
            return
        with self._leaving_nothing():
            self._kill()
            self._finish(turn, fault)

    def clear(self) -> None:
        """End the child that runs, and forget all turns; nothing is waited for."""
        unended = [turn for turn in self._turns if turn.outcome is None]
        if any(turn.course is not None for turn in unended):
            self._launcher.kill()
        for turn in unended:
            turn.outcome, turn.ended = RunnerError("the task was ended with all others"), time.monotonic()
        self._turns.clear()

    @contextmanager
    def _leaving_nothing(self) -> Iterator[None]:
        """Whatever is raised within leaves no child running."""
        try:
            yield
        except BaseException:
            self.clear()
            raise

    def _follow(self, *, waiting: bool) -> bool:
        """Whether there was something new of the child that runs."""
        turn = self._turns[0]
        assert turn.course is not None
        left_s = max(0.0, turn.course.deadline - time.monotonic())
        event = self._launcher.next_event(left_s if waiting else 0.0)
        if event is not None:
            self._hear(turn, turn.course, event)
        elif time.monotonic() < turn.course.deadline:
            return False
        else:
            ended = time.monotonic()
            self._kill()
            self._finish(turn, reply_left(Path(turn.job.directory), turn.course.end(None, ended)), ended)
        return True

    def _hear(self, turn: Turn, course: Course, event: Event) -> None:
        if "exited" in event:
            ending = course.end(int(event["exited"]), event["at"])
            self._finish(turn, reply_left(Path(turn.job.directory), ending), event["at"])
        elif "phase" in event:
            course.enter(str(event["phase"]), event["at"])
            self._on_phase(str(event["phase"]))

    def _finish(self, turn: Turn, outcome: Reply | RunnerError, at: float | None = None) -> None:
        """Keep what came of the first turn, and start the next. Whose child cannot be started is told when asked."""
        turn.outcome, turn.ended = outcome, time.monotonic() if at is None else at
        self._turns.popleft()
        if self._turns:
            following = self._turns[0]
            try:
                self._start(following)
            except RunnerError as fault:
                self._finish(following, fault)

    def _start(self, turn: Turn) -> None:
        self._prepare(turn.job)
        (Path(turn.job.directory) / JOB_FILE).write_bytes(to_json(turn.job, indent=1))
        try:
            self._launcher.start(Path(turn.job.directory))
        except BaseException:
            self._launcher.kill()
            raise
        turn.course = Course(turn.job)

    def _kill(self) -> None:
        """Kill the child, and wait until it is seen to have ended."""
        self._launcher.kill()
        while (event := self._launcher.next_event(_DYING_S)) is not None and "exited" not in event:
            pass
