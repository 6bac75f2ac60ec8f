"""Start child processes: forked from a server that has already imported torch, or spawned as new processes."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Protocol

import msgspec
import psutil

from autocompile.core.errors import RunnerError
from autocompile.core.protocol import EVENTS_VARIABLE, LOG_FILE, REPLY_FILE
from autocompile.runner.pausing import pause_tree, resume_tree, worked_s

_SERVER_START_S = 300.0
Event = dict[str, Any]


class Launcher(Protocol):
    """Starts one child at a time and reports its events.

    Events are `{"phase": name}` while the child runs and `{"exited": code}` when it ends. The code is negative for a
    signal. If the child ended without a reply because the process that started it ended, `lost` is true, and a child
    can be started again. Each event has the time `at` which it was received, on `time.monotonic`.
    """

    def start(self, directory: Path) -> None:
        """Start a child that runs the job in `directory`."""
        ...

    def next_event(self, timeout_s: float) -> Event | None:
        """Return the next event, or None if no event arrived in time."""
        ...

    def kill(self) -> None:
        """Kill the child that was started last, if it still runs, and all processes it started."""
        ...

    def pause(self) -> None:
        """Pause the running child and all processes it started until `resume`. It can be killed while paused."""
        ...

    def resume(self) -> None:
        """Let the child continue."""
        ...

    def worked_s(self) -> float:
        """Return the seconds of CPU time that the running child and all processes it started have used so far."""
        ...

    def preload(self, modules: tuple[str, ...], search_path: tuple[str, ...]) -> None:
        """Import these modules before children start, where that is possible."""
        ...

    def close(self) -> None:
        """End all processes of this launcher. May be called twice."""
        ...


class ForkServer:
    """Forks children from one process that has imported torch and Inductor: 2.6 s per trial instead of 9.5 s.

    (Same work, measured on 2 cores with torch 2.13; see ARCHITECTURE.md.) If the server is killed, the next `start`
    starts another one.
    """

    def __init__(self, log: Path, scratch: Path) -> None:
        self._log, self._scratch = log, scratch
        self._child: int | None = None
        self._directory = Path()
        self._imports: dict[str, object] = {}
        self._serve()

    def start(self, directory: Path) -> None:
        self._child, self._directory = None, directory
        try:
            self._fork()
        except RunnerError:
            if self._process.poll() is None:  # it runs, but does not answer
                raise
            self.close()
            self._serve()
            if self._imports:
                self._import()
            self._fork()

    def _fork(self) -> None:
        self._send({"run": str(self._directory)})
        self._child = int(self._expect("started")["started"])

    def next_event(self, timeout_s: float) -> Event | None:
        try:
            event = self._events.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            return None
        if event is not None:
            return event
        if self._child is None:
            self.close()
            raise RunnerError(f"the process that starts trials ended: {_tail(self._log)}")
        return self._without_server(self._child)

    def _without_server(self, child: int) -> Event:
        """Return how a child ended whose server ended before it: by its reply, as nothing else has its exit code."""
        kill_tree(child)
        self._child = None
        has_replied = (self._directory / REPLY_FILE).exists()
        return {"exited": 0 if has_replied else -signal.SIGKILL, "lost": not has_replied, "at": time.monotonic()}

    def kill(self) -> None:
        if self._child is None:  # interrupted before the server reported the child's id: the server kills the child
            self.close()
        else:
            kill_tree(self._child)

    def pause(self) -> None:
        if self._child is not None:
            pause_tree(self._child)

    def resume(self) -> None:
        if self._child is not None:
            resume_tree(self._child)

    def worked_s(self) -> float:
        return worked_s(self._child) if self._child is not None else 0.0

    def preload(self, modules: tuple[str, ...], search_path: tuple[str, ...]) -> None:
        self._imports = {"preload": modules, "search_path": search_path}
        self._import()

    def _import(self) -> None:
        self._send(self._imports)
        if self._expect("preloaded")["preloaded"]:
            return
        self._imports = {}
        self.close()
        self._serve()

    def close(self) -> None:
        _end(self._process)

    def _serve(self) -> None:
        command = [sys.executable, "-P", "-m", "autocompile.trial.server"]
        self._process, self._events = _start(command, self._log, self._scratch)
        self._expect("ready")

    def _send(self, command: dict[str, object]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(command) + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError) as fault:  # ValueError: its input is closed
            raise RunnerError(f"the process that starts trials ended: {_tail(self._log)}") from fault

    def _expect(self, name: str) -> Event:
        while True:
            event = self.next_event(_SERVER_START_S)
            if event is None:
                self.close()
                raise RunnerError(f"the process that starts trials did not answer: {_tail(self._log)}")
            if name in event:
                return event


class Spawner:
    """Starts each child as a new process, for systems where a process cannot be forked safely."""

    def __init__(self, log: Path, scratch: Path) -> None:
        self._log, self._scratch = log, scratch
        self._process: subprocess.Popen[bytes] | None = None
        self._events: queue.Queue[Event | None] = queue.Queue()

    def start(self, directory: Path) -> None:
        self.close()
        command = [sys.executable, "-P", "-m", "autocompile.trial.child", str(directory)]
        self._process, self._events = _start(command, directory / LOG_FILE, self._scratch)

    def next_event(self, timeout_s: float) -> Event | None:
        try:
            event = self._events.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            return None
        if event is not None:
            return event
        assert self._process is not None
        return {"exited": self._process.wait(), "at": time.monotonic()}

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            kill_tree(self._process.pid)

    def pause(self) -> None:
        if self._process is not None:
            pause_tree(self._process.pid)

    def resume(self) -> None:
        if self._process is not None:
            resume_tree(self._process.pid)

    def worked_s(self) -> float:
        return worked_s(self._process.pid) if self._process is not None else 0.0

    def preload(self, modules: tuple[str, ...], search_path: tuple[str, ...]) -> None:
        """Do nothing: every child imports the modules itself."""

    def close(self) -> None:
        if self._process is not None:
            _end(self._process)


def kill_tree(pid: int) -> None:
    """Kill a process, its group, and the processes it started in other groups."""
    try:
        family = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).kill()


def _start(command: list[str], log: Path, scratch: Path) -> tuple[subprocess.Popen[bytes], queue.Queue[Event | None]]:
    reader, writer = os.pipe()
    # Without this, profile-guided dynamic shapes would carry what one trial learned into the next.
    environment = {name: value for name, value in os.environ.items() if name != "TORCH_COMPILE_JOB_ID"}
    # A child that is killed, or exits without its exit handlers, does not remove its temporary files.
    environment["TMPDIR"] = str(scratch)
    environment[EVENTS_VARIABLE] = str(writer)
    # torch then asks NVML whether there is a GPU. Asking CUDA would make the server unusable for forking.
    environment["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
            pass_fds=(writer,),
        )
    os.close(writer)
    events: queue.Queue[Event | None] = queue.Queue()
    threading.Thread(target=_read, args=(reader, events), daemon=True).start()
    return process, events


def _read(descriptor: int, events: queue.Queue[Event | None]) -> None:
    try:
        with os.fdopen(descriptor, "rb") as stream:
            for line in stream:
                events.put({**msgspec.json.decode(line), "at": time.monotonic()})
    finally:
        events.put(None)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        process.wait(timeout=2)
    except subprocess.TimeoutExpired:
        kill_tree(process.pid)
        process.wait()


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "it printed nothing"
