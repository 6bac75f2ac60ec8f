"""The agent: a process on another machine, or for another GPU, that runs the tasks that home sends.

The agent reads requests from standard input and writes answers to standard output, each preceded by its length. When
its input ends, or no request has come for a while, home or the engine that started the agent is gone. The agent then
ends, kills all processes it started and removes all files it wrote.
"""

from __future__ import annotations

import os
import platform
import select
import sys
import time
from pathlib import Path

import psutil

from autocompile.core.errors import AutocompileError, RunnerError
from autocompile.core.job import CompileTask, Limits, PackTask, ToolchainTask, TrialTask
from autocompile.core.outcome import Toolchain
from autocompile.gpus import VISIBLE, gpu_states, visible_names
from autocompile.host import environment, user_cache_directory
from autocompile.runner.cluster import frames
from autocompile.runner.cluster.files import Digests, Store
from autocompile.runner.cluster.messages import (
    Answer,
    Ask,
    Cancel,
    Done,
    Ended,
    Fetch,
    Forget,
    Hello,
    Here,
    Keep,
    Lacking,
    News,
    Open,
    Piece,
    Refused,
    Start,
    Told,
    ask_in,
    packed,
)
from autocompile.runner.cluster.messages import Digests as Listed
from autocompile.runner.cluster.paths import missing_module, moved, moved_workload
from autocompile.runner.local import LocalRunner
from autocompile.runner.turn import Turn
from autocompile.scratch import Scratch

# How often to check on running children: their limits are enforced and their turns started only by checking.
_GLANCE_S = 0.1
# Home sends a request several times a minute, whatever it does.
ABANDONED_S = 120.0
_TOOLCHAIN_S = 600.0


def here(visible: str | None = None) -> Here:
    """Describe this machine, as seen with `visible` as CUDA_VISIBLE_DEVICES (None: the value of this process)."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    started = boot.read_text().strip() if boot.exists() else f"{psutil.boot_time():.0f}"
    names = visible_names(gpu_states(), os.environ.get(VISIBLE) if visible is None else visible)
    return Here(platform.node(), f"{platform.node()} {started}", environment(), names)


class Agent:
    """Answers requests one at a time, and checks on its children in between."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._store, self._digests = Store(directory / "files"), Digests()
        self._runner: LocalRunner | None = None
        self._under_way: dict[int, tuple[Turn, Path | None]] = {}

    def answer(self, ask: Ask) -> Answer:
        """Return the answer to a request. An error is returned as an answer, too."""
        try:
            return self._answer(ask)
        except (AutocompileError, OSError) as fault:
            return Refused(str(fault))

    def look(self) -> None:
        """Enforce the limits of running children, and start waiting ones."""
        for turn, _made in self._under_way.values():
            turn.is_done()

    def close(self) -> None:
        """Kill all children."""
        if self._runner is not None:
            self._runner.close()

    @property
    def is_busy(self) -> bool:
        """Whether there are started tasks whose end has not been reported yet."""
        return bool(self._under_way)

    def _answer(self, ask: Ask) -> Answer:
        if isinstance(ask, Hello):
            return here()
        if isinstance(ask, Lacking):
            return Listed(tuple(digest for digest in ask.digests if not self._store.has(digest)))
        if isinstance(ask, Fetch):
            return Piece(self._store.piece(ask.digest, ask.offset))
        if isinstance(ask, News):
            return Told(tuple(self._ended()))
        return self._do(ask)

    def _do(self, ask: Keep | Open | Start | Cancel | Forget) -> Done | Refused:
        if isinstance(ask, Keep):
            self._store.append(ask.digest, ask.data, is_last=ask.is_last)
        elif isinstance(ask, Open):
            return self._open(ask)
        elif isinstance(ask, Start):
            self._start(ask)
        elif isinstance(ask, Forget):
            self._ready.forget(ask.cache)
        elif ask.number in self._under_way:
            self._under_way.pop(ask.number)[0].cancel()
        return Done()

    @property
    def _ready(self) -> LocalRunner:
        if self._runner is None:
            raise RunnerError("the agent has not opened a workload yet")
        return self._runner

    def _open(self, ask: Open) -> Done | Refused:
        """Open a runner, with this machine's own toolchain."""
        workload = moved_workload(ask.workload, self._put_down(ask.trees))
        missing = missing_module(workload)
        if missing:
            return Refused(f"{missing} cannot be imported there; install it, or put it where all machines can see it")
        seed = user_cache_directory() / "toolchain" / environment().fingerprint
        self._runner = LocalRunner(self._directory / "jobs", seed, workers=ask.workers)
        task, limits = ToolchainTask(device=workload.device_type), Limits(total_s=_TOOLCHAIN_S)
        found = self._runner.submit(task, limits, cache="toolchain", exclusive=True).answer()
        if not isinstance(found, Toolchain):
            return Refused(f"the compiler check failed there: {getattr(found, 'message', '')}")
        self._runner.preload(workload)
        return Done()

    def _put_down(self, trees: dict[str, dict[str, str]]) -> dict[str, str]:
        return {path: str(self._store.put_down(tree)) for path, tree in trees.items()}

    def _start(self, ask: Start) -> None:
        assert isinstance(ask.task, CompileTask | PackTask | TrialTask)
        made = self._directory / "made" / str(ask.number)
        made.parent.mkdir(exist_ok=True)
        task = moved(ask.task, self._put_down(ask.trees), made)
        turn = self._ready.submit(task, ask.limits, cache=ask.cache, exclusive=ask.exclusive)
        self._under_way[ask.number] = (turn, made if isinstance(task, PackTask) else None)

    def _ended(self) -> list[Ended]:
        over = {number: turn for number, (turn, _made) in self._under_way.items() if turn.is_done()}
        return [self._end(number, turn) for number, turn in over.items()]

    def _end(self, number: int, turn: Turn) -> Ended:
        made = self._under_way.pop(number)[1]
        tree = {}
        if made is not None and made.exists():
            tree = self._digests.tree(made)
            self._store.adopt(made, tree)
        fault = turn.outcome if isinstance(turn.outcome, RunnerError) else None
        reply = None if isinstance(turn.outcome, RunnerError) else turn.outcome
        now = time.monotonic()
        span, pauses = turn.span_s, turn.pauses_s
        return Ended(
            number=number,
            reply=reply,
            fault=str(fault or ""),
            span_ago_s=(now - span[0], now - span[1]),
            pauses_ago_s=tuple((now - began, now - ended) for began, ended in pauses),
            tree=tree,
        )


def serve(agent: Agent, asked: int, answers: int) -> None:
    """Answer requests from `asked` on `answers`, until the input ends or no request has come for `ABANDONED_S`."""
    heard = time.monotonic()
    while time.monotonic() - heard < ABANDONED_S:
        ready, _, _ = select.select([asked], [], [], _GLANCE_S if agent.is_busy else ABANDONED_S / 10)
        if not ready:
            agent.look()
            continue
        data = frames.read(asked)
        if data is None:
            return
        frames.write(answers, packed(agent.answer(ask_in(data))))
        heard = time.monotonic()


def main() -> None:
    """Serve on standard input and output, and redirect all other output to standard error."""
    asked, answers = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    scratch = Scratch()
    agent = Agent(scratch.path)
    try:
        serve(agent, asked, answers)
    except (BrokenPipeError, ConnectionError):
        pass  # home is gone
    finally:
        agent.close()
        scratch.close()


if __name__ == "__main__":
    main()
    sys.exit(0)
