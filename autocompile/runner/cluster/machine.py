"""Home's side of one other machine: it sends tasks and files, receives results, and detects a lost machine."""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from autocompile.core.errors import MachineLost, RunnerError
from autocompile.core.job import CompileTask, Limits, PackTask, Reply, Task, TrialTask
from autocompile.core.workload import Workload
from autocompile.runner.cluster import messages
from autocompile.runner.cluster.files import PIECE_BYTES, Digests
from autocompile.runner.cluster.link import Link
from autocompile.runner.cluster.messages import (
    Answer,
    Ask,
    Cancel,
    Done,
    Ended,
    Fetch,
    Forget,
    Keep,
    Lacking,
    News,
    Open,
    Piece,
    Refused,
    Start,
    Told,
    Tree,
    answer_in,
    packed,
)
from autocompile.runner.cluster.paths import Tried, read_by

# How often to ask an agent for news, while it has tasks and while it has none.
_NEWS_S, _IDLE_S = 0.25, 10.0
# A machine that takes longer to answer counts as lost. An agent answers at once, except while it opens.
_ANSWER_S, _OPENING_S = 60.0, 600.0

AnswerT = TypeVar("AnswerT", bound=Answer)


@dataclass
class RemoteTask:
    """A task on another machine, as a `core.runner.PendingReply`. `number` identifies it among that machine's tasks."""

    number: int
    task: Tried
    machine: Machine
    wait_for: Callable[[Sequence[RemoteTask]], object]
    outcome: Reply | RunnerError | None = None
    span_s: tuple[float, float] = (0.0, 0.0)
    pauses_s: tuple[tuple[float, float], ...] = field(default=())

    def answer(self) -> Reply:
        self.wait_for([self])
        assert self.outcome is not None
        if isinstance(self.outcome, RunnerError):
            raise self.outcome
        return self.outcome

    def is_done(self) -> bool:
        return self.outcome is not None

    def cancel(self) -> None:
        self.machine.cancel(self)

    def end(self, outcome: Reply | RunnerError) -> None:
        """End the task with this outcome, unless it has already ended."""
        if self.outcome is None:
            now = time.monotonic()
            self.span_s = self.span_s if self.span_s[1] else (now, now)
            self.outcome = outcome


class Machine:
    """One other machine, reached through `link`, which compiles in `lanes` lanes.

    A single thread sends all requests to the machine and also asks for news. That thread calls `on_news` whenever a
    task has ended.
    """

    def __init__(self, name: str, lanes: int, link: Link, digests: Digests, on_news: Callable[[], None]) -> None:
        self.name, self.lanes = name, lanes
        self.lost: MachineLost | None = None
        self._link, self._digests, self._on_news = link, digests, on_news
        self._to_do: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._under_way: dict[int, RemoteTask] = {}
        self._count = 0
        self._thread = threading.Thread(target=self._work, name=f"autocompile {name}", daemon=True)

    def open(self, workload: Workload) -> str:
        """Prepare the machine for tasks of this workload. Return the reason if it cannot be prepared, else ""."""
        trees = {workload.directory: self._digests.tree(Path(workload.directory))}
        try:
            self._send(trees)
            self._ask(Open(workload, self.lanes, trees), Done, _OPENING_S)
        except RunnerError as fault:
            return str(fault)
        self._thread.start()
        return ""

    def submit(
        self,
        task: Task,
        limits: Limits,
        *,
        cache: str,
        exclusive: bool,
        wait_for: Callable[[Sequence[RemoteTask]], object],
    ) -> RemoteTask:
        """See `core.runner.Runner`. On a lost machine, the returned task has already ended."""
        assert isinstance(task, CompileTask | PackTask | TrialTask), "all other tasks run at home"
        self._count += 1
        pending = RemoteTask(self._count, task, self, wait_for)
        self._under_way[pending.number] = pending
        if self.lost:
            pending.end(self.lost)
        self._to_do.put(lambda: self._start(pending, limits, cache, exclusive))
        return pending

    def cancel(self, pending: RemoteTask) -> None:
        """End a task, unless it has already ended."""
        if pending.outcome is None:
            pending.end(RunnerError("the task was cancelled"))
            self._under_way.pop(pending.number, None)
            self._to_do.put(lambda: self._done(Cancel(pending.number)))

    def forget(self, cache: str) -> None:
        """Delete a compiler cache on that machine."""
        self._to_do.put(lambda: self._done(Forget(cache)))

    def close(self) -> None:
        """End the agent with all its tasks."""
        self._to_do.put(None)
        self._link.close()
        if self._thread.is_alive():
            self._thread.join(_ANSWER_S)

    def _work(self) -> None:
        try:
            while (step := self._next()) is not None:
                step()
            self._give_up(MachineLost("the run has ended"))
        except MachineLost as lost:
            self._give_up(lost)
        except (OSError, RunnerError, msgspec.DecodeError) as fault:
            self._give_up(MachineLost(f"{self.name}: {fault}"))
        except Exception as fault:  # without this, its tasks would never end, and the run would wait forever
            self._give_up(MachineLost(f"{self.name}: {type(fault).__name__}: {fault}"))

    def _next(self) -> Callable[[], None] | None:
        """Return the next request to send, or None when the machine is being closed."""
        try:
            return self._to_do.get(timeout=_NEWS_S if self._under_way else _IDLE_S)
        except queue.Empty:
            return self._hear

    def _give_up(self, lost: MachineLost) -> None:
        self.lost = lost
        for pending in tuple(self._under_way.values()):
            pending.end(lost)
        self._under_way.clear()
        self._on_news()

    def _start(self, pending: RemoteTask, limits: Limits, cache: str, exclusive: bool) -> None:
        if pending.outcome is not None:
            return
        trees = {path: self._digests.tree(Path(path)) for path in read_by(pending.task)}
        self._send(trees)
        self._done(Start(pending.number, pending.task, limits, cache, exclusive, trees))

    def _hear(self) -> None:
        told = self._ask(News(), Told)
        now = time.monotonic()
        for ended in told.ended:
            pending = self._under_way.get(ended.number)
            if pending is not None:
                self._end(pending, ended, now)
                self._under_way.pop(ended.number, None)
        if told.ended:
            self._on_news()

    def _end(self, pending: RemoteTask, ended: Ended, now: float) -> None:
        if isinstance(pending.task, PackTask):
            self._bring(ended.tree, Path(pending.task.directory))
        pending.span_s = (now - ended.span_ago_s[0], now - ended.span_ago_s[1])
        pending.pauses_s = tuple((now - began, now - until) for began, until in ended.pauses_ago_s)
        pending.end(ended.reply if ended.reply is not None else RunnerError(f"{self.name}: {ended.fault}"))

    def _send(self, trees: dict[str, Tree]) -> None:
        """Send those of these files that the machine does not have yet."""
        wanted = {
            digest: Path(path, name) if name else Path(path)
            for path, tree in trees.items()
            for name, digest in tree.items()
        }
        for digest in self._ask(Lacking(tuple(wanted)), messages.Digests).digests:
            with wanted[digest].open("rb") as stream:
                data = stream.read(PIECE_BYTES)
                while data or not stream.tell():
                    following = stream.read(PIECE_BYTES)
                    self._done(Keep(digest, data, is_last=not following))
                    if not following:
                        break
                    data = following

    def _bring(self, tree: Tree, to: Path) -> None:
        """Copy files that were made on the machine to `to`."""
        for name, digest in tree.items():
            file = to / name
            file.parent.mkdir(parents=True, exist_ok=True)
            found = hashlib.sha256()
            with file.open("wb") as stream:
                while data := self._ask(Fetch(digest, stream.tell()), Piece).data:
                    found.update(data)
                    stream.write(data)
            if found.hexdigest() != digest:
                raise MachineLost(f"{self.name}: a file that was packed there arrived damaged")

    def _done(self, ask: Ask) -> None:
        self._ask(ask, Done)

    def _ask(self, ask: Ask, expected: type[AnswerT], timeout_s: float = _ANSWER_S) -> AnswerT:
        """Send a request and return the answer. Raises MachineLost, or RunnerError if the agent refuses it."""
        try:
            answer = answer_in(self._link.call(packed(ask), timeout_s))
        except MachineLost as lost:
            raise MachineLost(f"{self.name}: {lost}") from lost
        if isinstance(answer, Refused):
            raise RunnerError(answer.reason)
        if not isinstance(answer, expected):
            raise MachineLost(f"{self.name}: it answered with {type(answer).__name__}, not {expected.__name__}")
        return answer
