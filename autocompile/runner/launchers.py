"""How a child process comes to be: forked from a server that has torch imported, or spawned afresh."""

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
from autocompile.core.protocol import EVENTS_VARIABLE, LOG_FILE
from autocompile.runner.pausing import pause_tree, resume_tree, worked_s

_SERVER_START_S = 300.0
Event = dict[str, Any]


class Launcher(Protocol):
    """Starts one child at a time and tells what becomes of it.

    Events are `{"phase": name}` while it runs and `{"exited": code}` at its end, the code negative
    for a signal, each with the time `at` which it was heard of, on `time.monotonic`.
    """

    def start(self, directory: Path) -> None:
        """Start a child on the job in `directory`."""
        ...

    def next_event(self, timeout_s: float) -> Event | None:
        """The next event, or None when none came in time."""
        ...

    def kill(self) -> None:
        """Kill the child that was started last, with all that it started, if it runs."""
        ...

    def pause(self) -> None:
        """Stop the child that runs, with all that it started, until `resume`; it can be killed meanwhile."""
        ...

    def resume(self) -> None:
        """Let the child go on."""
        ...

    def worked_s(self) -> float:
        """Seconds of CPU time that the child that runs took so far, with all that it started."""
        ...

    def preload(self, modules: tuple[str, ...], search_path: tuple[str, ...]) -> None:
        """Have children start with these modules imported, where that is possible."""
        ...

    def close(self) -> None:
        """End everything; may be called twice."""
        ...


class ForkServer:
    """Children are forked from one process that has imported torch and Inductor: 2.6 s a trial, not 9.5.

    (Same work, measured on 2 cores with torch 2.13; see ARCHITECTURE.md.)
    """

    def __init__(self, log: Path, scratch: Path) -> None:
        self._log, self._scratch = log, scratch
        self._child: int | None = None
        self._serve()

    def start(self, directory: Path) -> None:
        self._child = None
        self._send({"run": str(directory)})
        self._child = int(self._expect("started")["started"])

    def next_event(self, timeout_s: float) -> Event | None:
        try:
            event = self._events.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            return None
        if event is None:
            raise RunnerError(f"the process that starts trials ended: {_tail(self._log)}")
        return event

    def kill(self) -> None:
        if self._child is None:  # interrupted before it was told which child it is: the server ends it
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
        self._send({"preload": modules, "search_path": search_path})
        if self._expect("preloaded")["preloaded"]:
            return
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
    """Children are started afresh, for systems where a process cannot be forked safely."""

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
        """Nothing to do: every child imports for itself."""

    def close(self) -> None:
        if self._process is not None:
            _end(self._process)


def kill_tree(pid: int) -> None:
    """Kill a process, its group, and what it started in groups of their own."""
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
    # Profile-guided shapes would carry what one trial learned into the next.
    environment = {name: value for name, value in os.environ.items() if name != "TORCH_COMPILE_JOB_ID"}
    # A child that is killed, or ends without its exit handlers, removes none of its temporary files.
    environment["TMPDIR"] = str(scratch)
    environment[EVENTS_VARIABLE] = str(writer)
    # Asks NVML whether there is a GPU, where asking CUDA would spoil the server for forking.
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
