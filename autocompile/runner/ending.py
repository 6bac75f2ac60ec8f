"""How a child process ended, and the reply that it left."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

import msgspec

from autocompile.core.job import Reply
from autocompile.core.outcome import Failure, FailureKind
from autocompile.core.protocol import LOG_FILE, REPLY_FILE
from autocompile.core.serde import from_json

_LOG_TAIL_LINES, _LOG_TAIL_BYTES = 20, 1 << 14


@dataclass(frozen=True)
class Ending:
    """How a child ended: its exit `code`, or None if it was killed at a limit; in which phase, and after how long."""

    code: int | None
    phase: str
    seconds: dict[str, float]
    total_s: float


def reply_left(directory: Path, ending: Ending) -> Reply:
    """Return the child's reply or, if it left none, a Failure derived from how it ended."""
    path = directory / REPLY_FILE
    if ending.code == 0 and path.exists():
        try:
            reply: Reply = from_json(path.read_bytes(), Reply)  # type: ignore[arg-type]
        except msgspec.DecodeError as fault:
            unreadable = f"its reply cannot be read: {fault}"
            return Failure(stage=ending.phase, kind="error", message=unreadable, phases_s=ending.seconds)
        if isinstance(reply, Failure):
            return msgspec.structs.replace(reply, log_tail=_log_tail(directory))
        return reply
    kind, message = _unnatural(ending)
    return Failure(ending.phase, kind, message, log_tail=_log_tail(directory), phases_s=ending.seconds)


def _unnatural(ending: Ending) -> tuple[FailureKind, str]:
    if ending.code is None:
        return "timeout", f"killed after {ending.total_s:.1f} s, while in phase {ending.phase}"
    if ending.code == -signal.SIGKILL:
        return "out_of_memory", "killed by the system, most likely because it ran out of memory"
    if ending.code < 0:
        return "crash", f"ended by signal {signal.Signals(-ending.code).name} in phase {ending.phase}"
    return "crash", f"exited with status {ending.code} and without a reply in phase {ending.phase}"


def _log_tail(directory: Path) -> str:
    log = directory / LOG_FILE
    if not log.exists():
        return ""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
        return "\n".join(stream.read().decode(errors="replace").splitlines()[-_LOG_TAIL_LINES:])
