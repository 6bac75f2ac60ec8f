"""The phases that a running child has announced, and their seconds without the time in which it was paused."""

from __future__ import annotations

import time

from msgspec.structs import replace

from autocompile.core.job import Limits, Reply
from autocompile.runner.ending import Ending


class Course:
    """A child's current phase, and the seconds of its earlier phases.

    The limit `total_s` is wall time, like a run's budget. The limit `compile_s` and the seconds of the phases do not
    count the time in which the child was paused.
    """

    def __init__(self, limits: Limits) -> None:
        self.began = self._since = time.monotonic()
        self.pauses: list[tuple[float, float]] = []
        self._limits = limits
        self._phase = "start"
        self._seconds: dict[str, float] = {}
        self._paused_s: dict[str, float] = {}
        self._paused_at: float | None = None

    @property
    def deadline(self) -> float:
        """The time at which to kill the child."""
        deadline = self.began + self._limits.total_s
        if self._phase == "compile" and self._limits.compile_s and self._paused_at is None:
            left_s = self._limits.compile_s - self._seconds.get("compile", 0.0)
            deadline = min(deadline, self._since + left_s)
        return deadline

    @property
    def phase(self) -> str:
        """The child's current phase."""
        return self._phase

    def enter(self, phase: str, at: float) -> None:
        """Record that the child has entered a phase. A paused child entered it just before the pause."""
        self._leave_phase(at)
        self._phase = phase

    def pause(self, at: float) -> None:
        """Record that the child is paused from `at` on."""
        self._leave_phase(at)
        self._paused_at = at

    def resume(self, at: float) -> None:
        """Record that the child continues."""
        self._since = at
        self._note_pause(at)

    def end(self, code: int | None, at: float) -> Ending:
        """Record that the child has ended, and return its ending."""
        self._leave_phase(at)
        self._note_pause(at)
        return Ending(code, self._phase, self._seconds, at - self.began)

    def without_pauses(self, reply: Reply) -> Reply:
        """Return the reply with the pauses subtracted from its phases, as the child cannot know when it was paused."""
        if not self._paused_s:
            return reply
        phases_s = {name: max(0.0, s - self._paused_s.get(name, 0.0)) for name, s in reply.phases_s.items()}
        return replace(reply, phases_s=phases_s)

    def _leave_phase(self, at: float) -> None:
        if self._paused_at is None:
            self._seconds[self._phase] = self._seconds.get(self._phase, 0.0) + max(0.0, at - self._since)
            self._since = at

    def _note_pause(self, at: float) -> None:
        if self._paused_at is not None:
            self._paused_s[self._phase] = self._paused_s.get(self._phase, 0.0) + at - self._paused_at
            self.pauses.append((self._paused_at, at))
            self._paused_at = None
