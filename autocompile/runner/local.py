"""Trials on this machine: each runs in a child process with limits and its own compiler cache.

A child that crashes does not end the study.

The parent drives the launchers itself, without the workers of a backend. A launcher's fork server is already a separate
process. A worker in between would be one more process to start, pause and kill, and threads would have to agree on
which child is timed. For each launcher, one thread reads the events of its children, and sleeps until there are any.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from autocompile.core.job import Job, Limits, Task
from autocompile.core.runner import MachineEntry, PendingReply
from autocompile.core.workload import Workload
from autocompile.host import can_fork
from autocompile.interrupts import Interrupts
from autocompile.runner.lane import Lane
from autocompile.runner.launchers import ForkServer, Launcher, Spawner
from autocompile.runner.turn import Turn
from autocompile.runner.turns import Turns
from autocompile.runtime.catalogue import kinds
from autocompile.scratch import Scratch, sweep

_HEADERS = "precompiled_headers"


class LocalRunner:
    """Runs timed tasks alone, and compiles in up to `workers` children at the same time. Sleeps during a timing.

    With one worker, all tasks run one by one, in the order in which they are submitted. With several workers,
    `preload` adds their lanes to the lane for timing once the workload is known. On a CPU, children that compile are
    paused while another child is timed. With a GPU they continue, until they disturb a timing.

    `directory`: for jobs, logs and compiler caches. `seed`: the toolchain's cache directory, whose contents are copied
    to every new cache. `on_phase` is called with the child's phase. `on_disturbance` is called when children that
    compile have disturbed a timing for the first time. `launch` makes a launcher with the given name. Children use a
    separate temporary directory. Temporary directories left behind by killed runs are removed first.
    """

    def __init__(
        self,
        directory: Path,
        seed: Path,
        *,
        workers: int = 1,
        on_phase: Callable[[str], None] = lambda _phase: None,
        on_disturbance: Callable[[], None] = lambda: None,
        launch: Callable[[str], Launcher] | None = None,
    ) -> None:
        self._directory = directory
        sweep()
        self._scratch = Scratch()
        scratch = self._scratch.path
        self._caches = directory / "caches" if _plain(directory) else scratch / "caches"
        self._seed = seed if _plain(seed) else scratch / "toolchain"
        self._count = 0
        self._first_users: dict[Path, str] = {}
        self._workers = workers
        self._on_phase = on_phase
        self._on_disturbance = on_disturbance
        directory.mkdir(parents=True, exist_ok=True)
        self._launch = launch or self._launcher
        self._turns = self._over([Lane(self._launch("server"))])
        self._interrupts = Interrupts()
        self._interrupts.install()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the fork servers and all running children."""
        self._interrupts.uninstall()
        self._turns.clear()
        for lane in self._turns.lanes:
            lane.launcher.close()
        self._scratch.close()

    def preload(self, workload: Workload) -> None:
        """Open all lanes, and import the workload's modules before children start. No task may be running."""
        timing, *others = self._turns.lanes
        is_to_open = self._workers > 1 and not others
        names = [f"server{number}" for number in range(1, self._workers + 1)] if is_to_open else []
        with ThreadPoolExecutor(self._workers + 1) as pool:  # each waits for a process to import torch
            lanes = [timing, *others, *(Lane(launcher) for launcher in pool.map(self._launch, names))]
            self._turns = self._over(lanes)
            list(pool.map(lambda lane: lane.launcher.preload(workload.modules, workload.search_path), lanes))
        if workload.device_type != "cpu":
            self._turns.beside = "go on"

    @property
    def lanes(self) -> int:
        """The number of children that can compile at the same time."""
        return self._workers

    @property
    def machines(self) -> tuple[MachineEntry]:
        """Only the machine that this process runs on."""
        return (MachineEntry("", self._workers),)

    def submit(self, task: Task, limits: Limits, *, cache: str, exclusive: bool, machine: int = 0) -> Turn:
        """Submit `task` to run in a new child; see `core.runner.Runner`. After a Ctrl-C, no task runs any more."""
        assert not machine, "there is no other machine"
        try:
            self._interrupts.check()
        except KeyboardInterrupt:
            self._turns.clear()
            raise
        self._count += 1
        name = f"{self._count:04d}"
        job = Job(
            name=name,
            task=task,
            directory=str(self._directory / name),
            cache_directory=str(self._cache(cache)),
            headers_directory=str(self._seed / _HEADERS),
            limits=limits,
        )
        return self._turns.add(job, exclusive=exclusive)

    def first_done(self, pending: Sequence[PendingReply]) -> PendingReply:
        """See `core.runner.Runner`."""
        return self._turns.wait_for([turn for turn in pending if isinstance(turn, Turn)])

    def forget(self, cache: str) -> None:
        """Delete a compiler cache that no task will name again."""
        shutil.rmtree(self._caches / cache, ignore_errors=True)

    def _launcher(self, name: str) -> Launcher:
        log = self._directory / f"{name}.log"
        return ForkServer(log, self._scratch.path) if can_fork() else Spawner(log, self._scratch.path)

    def _over(self, lanes: Sequence[Lane]) -> Turns:
        """Return Turns on these lanes: the first is for timing. A single lane is for all tasks."""
        timing, *compiling = lanes
        return Turns(
            timing,
            compiling or [timing],
            prepare=self._prepare,
            on_phase=self._on_phase,
            on_disturbance=self._on_disturbance,
        )

    def _cache(self, name: str) -> Path:
        return self._seed if name == "toolchain" else self._caches / name

    def _prepare(self, job: Job) -> None:
        """Make a directory for the job, and its compiler cache with the present contents of the toolchain's cache.

        A job that is repeated starts with a new cache, too, if it was the first to use it.
        """
        Path(job.directory).mkdir()
        cache = Path(job.cache_directory)
        if self._first_users.get(cache) == job.name:
            shutil.rmtree(cache, ignore_errors=True)
        if not cache.exists():
            self._first_users[cache] = job.name
            self._seed_anew(cache)
        cache.mkdir(parents=True, exist_ok=True)

    def _seed_anew(self, cache: Path) -> None:
        """Copy the toolchain's files of each runtime to a new cache. Precompiled headers are used in place."""
        for kind in kinds():
            left = self._seed / kind.name
            if left.exists():
                shutil.copytree(left, cache / kind.name, ignore=shutil.ignore_patterns(*kind.cached_for_programs))
            for file in (found for pattern in kind.cached_for_machine for found in left.rglob(pattern)):
                target = cache / kind.name / file.relative_to(left)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, target)


def _plain(path: Path) -> bool:
    """Whether compilers can work in this path: their command lines are not quoted, so a space would end the path."""
    return re.fullmatch(r"[\w./+-]+", str(path)) is not None
