"""A lane: one launcher, which runs one child at a time, and the turn of that child."""

from __future__ import annotations

import time
from pathlib import Path

from autocompile.core.protocol import JOB_FILE
from autocompile.core.serde import to_json
from autocompile.runner.course import Course
from autocompile.runner.launchers import Launcher
from autocompile.runner.turn import Turn

# How long to wait for a killed child to end.
_DYING_S = 10.0
# A child that uses less CPU time than the first figure within the second is waiting for something.
_SIGN_OF_LIFE_S, _STUCK_S = 0.05, 2.0


class Lane:
    """A lane runs one child at a time. `turn` is the turn that the child belongs to, or None while the lane is free."""

    def __init__(self, launcher: Launcher) -> None:
        self.launcher = launcher
        self.turn: Turn | None = None
        self.is_paused = False
        self._seen = (0.0, 0.0)

    def start(self, turn: Turn) -> None:
        """Start the child of this turn. Raises RunnerError if it cannot be started; then nothing is left running."""
        (Path(turn.job.directory) / JOB_FILE).write_bytes(to_json(turn.job, indent=1))
        try:
            self.launcher.start(Path(turn.job.directory))
        except BaseException:
            self.launcher.kill()
            raise
        turn.course = Course(turn.job.limits)
        self.turn, self.is_paused = turn, False
        self._seen = (time.monotonic(), 0.0)

    def pause(self) -> None:
        """Pause the running child, if there is one."""
        if self.turn is not None and self.turn.course is not None and not self.is_paused:
            self.is_paused = True
            self.launcher.pause()
            self.turn.course.pause(time.monotonic())

    def resume(self) -> None:
        """Resume the paused child, if there is one."""
        if self.is_paused and self.turn is not None and self.turn.course is not None:
            self.turn.course.resume(time.monotonic())
            self.launcher.resume()
        self.is_paused = False

    def is_stuck(self) -> bool:
        """Whether the child has done nothing for longer than it takes to read a file."""
        now, worked_s = time.monotonic(), self.launcher.worked_s()
        seen_at, seen_s = self._seen
        if worked_s - seen_s > _SIGN_OF_LIFE_S:
            self._seen = (now, worked_s)
            return False
        return now - seen_at > _STUCK_S

    def kill(self) -> None:
        """Kill the child, and wait until it has ended."""
        self.launcher.kill()
        while (event := self.launcher.next_event(_DYING_S)) is not None and "exited" not in event:
            pass

    def leave(self) -> None:
        """Free the lane: its turn has ended."""
        self.turn, self.is_paused = None, False
