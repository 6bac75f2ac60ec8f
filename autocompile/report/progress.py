"""Progress of a run, on standard error. It draws only on events, never while a child process is timing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from autocompile.core.decision import Decision
from autocompile.core.outcome import Failure
from autocompile.core.trial import Trial
from autocompile.core.units import format_duration, format_ms
from autocompile.core.words import CALLS, Words, words_of
from autocompile.core.workload import Workload

_SHOWN_TRIALS = 8


class LiveProgress:
    """A listener that shows the current task, the best result so far, the last trials and the time left.

    Without a terminal, it prints one line per finished trial.
    """

    def __init__(self, budget_s: float, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._ends = time.monotonic() + budget_s
        self._stage = self._task = self._phase = ""
        self._lanes: Sequence[str] = ()
        self._lines: list[str] = []
        self._best: tuple[float, str] | None = None
        self._count = 0
        self._words = CALLS
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def on_workload(self, workload: Workload) -> None:
        """Remember whether calls or steps are tuned."""
        self._words = words_of(workload.kind)

    def on_stage(self, stage: str) -> None:
        """Show the new stage."""
        self._stage, self._lanes = stage, ()
        self._draw()

    def on_task(self, label: str) -> None:
        """Show the task that a child process starts."""
        self._task, self._phase = label, "starting"
        self._draw()

    def on_phase(self, phase: str) -> None:
        """Show the phase of the child process."""
        self._phase = phase
        self._draw()

    def on_lanes(self, lanes: Sequence[str]) -> None:
        """Show what the lanes are doing."""
        self._lanes = lanes
        self._draw()

    def on_trial(self, trial: Trial) -> None:
        """Show the result of a finished trial."""
        self._count += 1
        label = trial.label if self._lanes else self._task  # with several lanes, `_task` may be another trial
        line = f"{label}: {_result(trial, self._words)}"
        self._lines.append(line)
        if trial.measurement is not None:
            speed = 1 / trial.measurements[-1].ratio.value
            if self._best is None or speed > self._best[0]:
                self._best = speed, trial.label
        if not self._console.is_terminal:
            self._console.print(
                Text(f"{format_duration(max(0.0, self._ends - time.monotonic()))} left  {line}"), soft_wrap=True
            )
        self._draw()

    def on_decision(self, decision: Decision) -> None:
        """Confirm at once that the user stopped the run; other decisions are only in the final report."""
        if decision.subject == "the run":
            self._console.print(Text(f"{decision.reason}: this takes a moment"))

    def on_notice(self, notice: str) -> None:
        """Print a notice at once, above the live display."""
        self._console.print(Text(f"note: {notice}"), soft_wrap=True)

    def _draw(self) -> None:
        if not self._console.is_terminal:
            return
        left = format_duration(max(0.0, self._ends - time.monotonic()))
        best = f"best so far {self._best[1]} ({self._best[0]:.2f}x)" if self._best else "nothing measured yet"
        head = Text.assemble((self._stage, "bold"), f"  {self._count} trials, {best}, {left} left")
        lanes = self._lanes or (f"{self._task}, {self._phase}",)
        now = [Text(f"now: {lane}", style="cyan") for lane in lanes]
        ended = [Text(f"  {line}") for line in self._lines[-_SHOWN_TRIALS:]]
        self._live.update(Group(head, *ended, *now), refresh=True)


def _result(trial: Trial, words: Words) -> str:
    if isinstance(trial.outcome, Failure):
        return f"{trial.outcome.kind.replace('_', ' ')}: {trial.outcome.message.splitlines()[0]}"
    latest = trial.measurements[-1]
    gain = latest.ratio.inverse()
    return f"{gain.value:.2f}x ({gain.low:.2f} to {gain.high:.2f}), {format_ms(latest.latency.p50_ms)} a {words.one}"
