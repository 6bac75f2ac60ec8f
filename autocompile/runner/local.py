"""Trials on this machine: a child each, with limits, a compiler cache of its own, and no way to end the study."""

from __future__ import annotations

import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from autocompile.core.job import Job, Limits, Reply, Task
from autocompile.core.outcome import Failure, FailureKind
from autocompile.core.serde import from_json, to_json
from autocompile.core.workload import Workload
from autocompile.host import can_fork
from autocompile.runner.interrupts import Interrupts
from autocompile.runner.launchers import ForkServer, Launcher, Spawner
from autocompile.scratch import Scratch, sweep

_LOG_TAIL_LINES, _LOG_TAIL_BYTES = 20, 1 << 14
_HEADERS = "precompiled_headers"
# What a compiler keeps for programs, and the headers, which are used where they lie. The rest of its cache belongs to
# the toolchain, and seeds every new one.
_OF_PROGRAMS = shutil.ignore_patterns("fxgraph", "aotautograd", "triton", "locks", "*.main.*", "*.py", _HEADERS)


class LocalRunner:
    """Runs one child at a time, and sleeps meanwhile.

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
        self._on_phase = on_phase
        self._count = 0
        directory.mkdir(parents=True, exist_ok=True)
        log = directory / "server.log"
        self._launcher = launcher or (ForkServer(log, scratch) if can_fork() else Spawner(log, scratch))
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
        self._launcher.close()
        self._scratch.close()

    def preload(self, workload: Workload) -> None:
        """Have children start with the workload's modules imported."""
        self._launcher.preload(workload.modules, workload.search_path)

    def run(self, task: Task, limits: Limits, *, cache: str) -> Reply:
        """Run `task` in a child of its own; see `core.runner.Runner`. After a Ctrl-C nothing is run any more."""
        self._interrupts.check()
        self._count += 1
        job = Job(
            name=f"{self._count:04d}",
            task=task,
            directory=str(self._directory / f"{self._count:04d}"),
            cache_directory=str(self._cache(cache)),
            headers_directory=str(self._seed / _HEADERS),
            limits=limits,
        )
        directory = Path(job.directory)
        directory.mkdir()
        (directory / "job.json").write_bytes(to_json(job, indent=1))
        self._launcher.start(directory)
        try:
            end = self._await(limits)
        except BaseException:
            self._launcher.kill()
            raise
        return _reply(directory, end)

    def forget(self, cache: str) -> None:
        """Delete a compiler cache that no task will name again."""
        shutil.rmtree(self._caches / cache, ignore_errors=True)

    def _cache(self, name: str) -> Path:
        if name == "toolchain":
            self._seed.mkdir(parents=True, exist_ok=True)
            return self._seed
        path = self._caches / name
        if not path.exists():
            if self._seed.exists():
                shutil.copytree(self._seed, path, ignore=_OF_PROGRAMS)
            path.mkdir(parents=True, exist_ok=True)
        return path

    def _await(self, limits: Limits) -> _End:
        started = now = time.monotonic()
        phase, phase_began = "start", started
        seconds: dict[str, float] = {}
        while True:
            deadline = started + limits.total_s
            if phase == "compile" and limits.compile_s:
                deadline = min(deadline, phase_began + limits.compile_s)
            event = self._launcher.next_event(deadline - now)
            now = time.monotonic()
            seconds[phase] = seconds.get(phase, 0.0) + now - phase_began
            if event is None:
                self._launcher.kill()
                self._drain()
                return _End(None, phase, seconds, now - started)
            if "exited" in event:
                return _End(int(event["exited"]), phase, seconds, now - started)
            phase_began = now
            if "phase" in event:
                phase = str(event["phase"])
                self._on_phase(phase)

    def _drain(self) -> None:
        """Wait until the killed child is seen to have ended."""
        while (event := self._launcher.next_event(10.0)) is not None and "exited" not in event:
            pass


def _plain(path: Path) -> bool:
    """Whether compilers can work there: their command lines do not quote, so a space would end a path."""
    return re.fullmatch(r"[\w./+-]+", str(path)) is not None


class _End(msgspec.Struct):
    """How a child ended: its exit code, or None if it was killed at a limit."""

    code: int | None
    phase: str
    seconds: dict[str, float]
    total_s: float


def _reply(directory: Path, end: _End) -> Reply:
    path = directory / "reply.json"
    if end.code == 0 and path.exists():
        try:
            reply: Reply = from_json(path.read_bytes(), Reply)  # type: ignore[arg-type]
        except msgspec.DecodeError as fault:
            return Failure(
                stage=end.phase, kind="error", message=f"its reply cannot be read: {fault}", phases_s=end.seconds
            )
        if isinstance(reply, Failure):
            return msgspec.structs.replace(reply, log_tail=_log_tail(directory))
        return reply
    kind, message = _unnatural(end)
    return Failure(stage=end.phase, kind=kind, message=message, log_tail=_log_tail(directory), phases_s=end.seconds)


def _unnatural(end: _End) -> tuple[FailureKind, str]:
    if end.code is None:
        return "timeout", f"killed after {end.total_s:.1f} s, while in phase {end.phase}"
    if end.code == -signal.SIGKILL:
        return "out_of_memory", "killed by the system, most likely for want of memory"
    if end.code < 0:
        return "crash", f"died of {signal.Signals(-end.code).name} in phase {end.phase}"
    return "crash", f"ended with status {end.code} and no reply in phase {end.phase}"


def _log_tail(directory: Path) -> str:
    log = directory / "log.txt"
    if not log.exists():
        return ""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
        return "\n".join(stream.read().decode(errors="replace").splitlines()[-_LOG_TAIL_LINES:])
