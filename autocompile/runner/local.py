"""Trials on this machine: a child each, with limits, a compiler cache of its own, and no way to end the study."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from autocompile.core.job import Job, Limits, Task
from autocompile.core.runner import PendingReply
from autocompile.core.workload import Workload
from autocompile.host import can_fork
from autocompile.runner.interrupts import Interrupts
from autocompile.runner.lane import Lane, Turn
from autocompile.runner.launchers import ForkServer, Launcher, Spawner
from autocompile.runtime.catalogue import kinds
from autocompile.scratch import Scratch, sweep

_HEADERS = "precompiled_headers"


class LocalRunner:
    """Runs one child at a time, in the order in which they are submitted, and sleeps meanwhile.

    `directory` is where jobs, logs and compiler caches lie; `seed` is the toolchain's cache directory,
    whose contents every new cache starts with; `on_phase` hears what the child is doing. Children have a
    temporary directory of their own; what killed runs left of these is removed first.
    """

    def __init__(
        self,
        directory: Path,
        seed: Path,
        *,
        on_phase: Callable[[str], None] = lambda _phase: None,
        launcher: Launcher | None = None,
    ) -> None:
        self._directory = directory
        sweep()
        self._scratch = Scratch()
        scratch = self._scratch.path
        self._caches = directory / "caches" if _plain(directory) else scratch / "caches"
        self._seed = seed if _plain(seed) else scratch / "toolchain"
        self._count = 0
        directory.mkdir(parents=True, exist_ok=True)
        log = directory / "server.log"
        self._launcher = launcher or (ForkServer(log, scratch) if can_fork() else Spawner(log, scratch))
        self._lane = Lane(self._launcher, prepare=self._prepare, on_phase=on_phase)
        self._interrupts = Interrupts()
        self._interrupts.install()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the server and whatever runs."""
        self._interrupts.uninstall()
        self._lane.clear()
        self._launcher.close()
        self._scratch.close()

    def preload(self, workload: Workload) -> None:
        """Have children start with the workload's modules imported. Nothing may be under way."""
        self._launcher.preload(workload.modules, workload.search_path)

    @property
    def lanes(self) -> int:
        """One."""
        return 1

    def submit(self, task: Task, limits: Limits, *, cache: str, exclusive: bool) -> Turn:  # noqa: ARG002  all are
        """A child of its own for `task`; see `core.runner.Runner`. After a Ctrl-C nothing is run any more."""
        try:
            self._interrupts.check()
        except KeyboardInterrupt:
            self._lane.clear()
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
        return self._lane.add(job)

    def first_done(self, pending: Sequence[PendingReply]) -> PendingReply:
        """See `core.runner.Runner`."""
        return self._lane.wait_for([turn for turn in pending if isinstance(turn, Turn)])

    def forget(self, cache: str) -> None:
        """Delete a compiler cache that no task will name again."""
        shutil.rmtree(self._caches / cache, ignore_errors=True)

    def _cache(self, name: str) -> Path:
        return self._seed if name == "toolchain" else self._caches / name

    def _prepare(self, job: Job) -> None:
        """A directory for the job, and its compiler cache, which starts with what the toolchain left until then."""
        Path(job.directory).mkdir()
        cache = Path(job.cache_directory)
        if not cache.exists():
            self._seed_anew(cache)
        cache.mkdir(parents=True, exist_ok=True)

    def _seed_anew(self, cache: Path) -> None:
        """Put into a new cache what of each runtime's belongs to the toolchain; headers are used where they lie."""
        for kind in kinds():
            left = self._seed / kind.name
            if left.exists():
                shutil.copytree(left, cache / kind.name, ignore=shutil.ignore_patterns(*kind.cached_for_programs))
            for file in (found for pattern in kind.cached_for_machine for found in left.rglob(pattern)):
                target = cache / kind.name / file.relative_to(left)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, target)


def _plain(path: Path) -> bool:
    """Whether compilers can work there: their command lines do not quote, so a space would end a path."""
    return re.fullmatch(r"[\w./+-]+", str(path)) is not None
