"""The server process that trials are forked from: it imports torch and Inductor once and never computes anything.

It must not start threads or compute: an OpenMP team or a CUDA context does not survive a fork. The server reads
commands as JSON lines from standard input. It writes events as JSON lines to the descriptor that the parent passed,
to which the children write their phases too.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
import psutil
import torch

from autocompile.core.protocol import LOG_FILE
from autocompile.trial.child import run_job
from autocompile.trial.forking import forked_can_use_cuda
from autocompile.trial.phases import announce


def main() -> None:
    """Serve until standard input ends, which means that the parent is gone."""
    commands = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    ended = _pipe_of_ended_children()
    announce({"ready": os.getpid()})
    for command in _lines(commands):
        if "preload" in command:
            announce(_preload(command["preload"], command["search_path"]))
        else:
            _run(Path(command["run"]), commands, ended)


def _preload(modules: list[str], search_path: list[str]) -> dict[str, object]:
    """Import the modules that the workload's pickle needs. If an import fails, the child will report it.

    This process can no longer be forked safely after an import that starts CUDA, queries its driver, or starts a team
    of threads (as computing at module level does). The parent then starts another server.
    """
    threads = psutil.Process().num_threads()
    has_gpu = bool(modules) and forked_can_use_cuda()
    sys.path[:] = search_path
    for name in modules:
        with contextlib.suppress(Exception):  # a user's module may raise anything
            importlib.import_module(name)
    started_cuda = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    is_whole = not started_cuda and psutil.Process().num_threads() <= threads
    return {"preloaded": is_whole and (not has_gpu or forked_can_use_cuda())}


def _pipe_of_ended_children() -> int:
    """Return a descriptor that becomes readable when a child has ended."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def _run(directory: Path, commands: int, ended: int) -> None:
    child = os.fork()
    if child == 0:
        _become_child(directory, commands)
    announce({"started": child})
    while True:
        ready, _, _ = select.select([commands, ended], [], [])
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            _kill_group(child)  # processes that the child started and left behind
            announce({"exited": os.waitstatus_to_exitcode(status)})
            return
        if commands in ready:  # the parent sends nothing while a child runs, so this is the end of the input
            kill(child)
            os._exit(1)
        os.read(ended, 4096)


def kill(child: int) -> None:
    """Kill a child and all processes it started, even if it was paused before it had its own process group."""
    _kill_group(child)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)


def _kill_group(child: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)


def _become_child(directory: Path, commands: int) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.close(commands)
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    log = os.open(directory / LOG_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    run_job(directory)
    os._exit(0)


def _lines(descriptor: int) -> Any:
    with os.fdopen(descriptor, "rb", closefd=False) as stream:
        for line in stream:
            yield msgspec.json.decode(line)


if __name__ == "__main__":
    main()
