"""The runs that work on a study, and what each works on: one record per run, which only that run writes.

A run that wants something writes it into its own record and then reads the records of all others. If one of them has it
too, the run takes it back. As each run writes before it reads, two runs that do so at the same time cannot miss each
other, and no two runs hold the same thing.

Each record has a counter, which its run raises every few seconds. A run counts as gone when its counter has not changed
for `limit_s` on the clock of the run that looks: clocks of different machines are never compared. Time in which no run
could look, because the database or the looking process was paused, does not count. On the same machine, the end of a
process is noticed at once.
"""

from __future__ import annotations

import os
import platform
import random
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import psutil
from msgspec import ValidationError
from msgspec.structs import replace

from autocompile.core.serde import Record, from_json, to_json

BEAT_S, LIMIT_S = 10.0, 60.0
_PREFIX = "run:"
# After two runs wanted the same thing and both gave way, each waits for a random time of at most this many seconds.
_GIVE_WAY_S = 0.2


class RunRecord(Record, frozen=True):
    """One run. `node` and `process` are equal only for the same process of the same machine.

    `held` maps the names of what it works on to what other runs should know about it.
    """

    node: str
    pid: int
    process: float
    beat: int = 0
    held: dict[str, str] = {}
    ended: bool = False


class Board(Protocol):
    """The place for the records: the attributes of a study."""

    def attributes(self, *, patient: bool = True) -> dict[str, Any]:
        """Return all current attributes."""
        ...

    def write(self, name: str, value: Any, *, patient: bool = True) -> None:
        """Set an attribute."""
        ...


class Presence:
    """One run among those that work on the study of `board`; `run` is its name.

    `beat_s`: how often a thread raises the counter and looks at those of the others; it starts with `keep_beating`.
    `fresh_s`: for how long the last view of the others counts as current, where nothing depends on it.
    """

    def __init__(
        self,
        board: Board,
        *,
        beat_s: float = BEAT_S,
        limit_s: float = LIMIT_S,
        fresh_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.run = secrets.token_hex(6)
        self._board, self._beat_s, self._limit_s, self._clock = board, beat_s, limit_s, clock
        self._own = RunRecord(_node(), os.getpid(), psutil.Process().create_time())
        self._silent: dict[str, tuple[int, float]] = {}  # by run: its counter, and for how long that has not changed
        self._fresh_s = fresh_s
        self._seen: dict[str, RunRecord] | None = None  # the living runs at the last look
        self._gone: frozenset[str] = frozenset()
        self._looked = clock()
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._write(patient=True)

    def keep_beating(self) -> None:
        """Raise the counter in a thread, until the end of the run."""
        self._thread = threading.Thread(target=self._beat_on, name="autocompile heartbeat", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Announce that this run has ended, and release what it held."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._own = replace(self._own, held={}, ended=True)
        self._write(patient=False)

    def beat(self) -> None:
        """Raise the counter, and look at those of the others."""
        with self._lock:
            self._own = replace(self._own, beat=self._own.beat + 1)
            self._write(patient=False)
        self.others(patient=False)

    def others(self, *, patient: bool = True) -> dict[str, RunRecord]:
        """Return all other living runs, by name."""
        attributes = self._board.attributes(patient=patient)
        with self._lock:
            now = self._clock()
            passed_s, self._looked = min(now - self._looked, 2 * self._beat_s), now
            records = _records(attributes)
            records.pop(self.run, None)
            living = {run: record for run, record in records.items() if self._lives(run, record, passed_s)}
            self._seen, self._gone = living, frozenset(records.keys() - living.keys())
        for run, record in records.items():
            if run not in living and not record.ended:  # other runs need not wait to notice
                self._board.write(_PREFIX + run, _text(replace(record, held={}, ended=True)), patient=patient)
        return living

    def seen(self) -> dict[str, RunRecord]:
        """Return all other living runs as of a moment ago: they may hold something else by now."""
        with self._lock:
            if self._seen is not None and self._clock() - self._looked < self._fresh_s:
                return self._seen
        return self.others()

    @property
    def gone(self) -> frozenset[str]:
        """The other runs that have ended or are gone, as of the last look."""
        return self._gone

    def look_again(self) -> None:
        """Read the records again at the next call."""
        with self._lock:
            self._seen = None

    def take(self, name: str, about: str = "") -> bool:
        """Hold something exclusively, described for other runs by `about`. False if another run holds it."""
        if _is_held(name, self.seen()):
            return False
        self._hold({**self._own.held, name: about})
        if not _is_held(name, self.others()):
            return True
        self.drop(name)
        time.sleep(random.uniform(0.0, _GIVE_WAY_S))  # noqa: S311  no secret
        return False

    def drop(self, name: str) -> None:
        """Release it."""
        if name in self._own.held:
            self._hold({other: about for other, about in self._own.held.items() if other != name})

    def _hold(self, held: Mapping[str, str]) -> None:
        with self._lock:
            self._own = replace(self._own, held=dict(held))
            self._write(patient=True)

    def _write(self, *, patient: bool) -> None:
        self._board.write(_PREFIX + self.run, _text(self._own), patient=patient)

    def _lives(self, run: str, record: RunRecord, passed_s: float) -> bool:
        if record.ended or (record.node == self._own.node and not _is_running(record)):
            return False
        beat, silent_s = self._silent.get(run, (record.beat, -passed_s))
        silent_s = silent_s + passed_s if beat == record.beat else 0.0
        self._silent[run] = record.beat, silent_s
        return silent_s <= self._limit_s

    def _beat_on(self) -> None:
        while not self._over.wait(self._beat_s):
            try:
                self.beat()
            except Exception:  # noqa: S112  whatever the driver raises: the next beat may come through
                continue


def _is_held(name: str, others: Mapping[str, RunRecord]) -> bool:
    return any(name in record.held for record in others.values())


def _records(attributes: Mapping[str, Any]) -> dict[str, RunRecord]:
    """Return the runs' records. Records of another version are skipped: their runs are not waited for."""
    records = {}
    for name, text in attributes.items():
        if name.startswith(_PREFIX):
            try:
                records[name.removeprefix(_PREFIX)] = from_json(text, RunRecord)
            except ValidationError:
                continue
    return records


def _text(record: RunRecord) -> str:
    return to_json(record).decode()


def _is_running(record: RunRecord) -> bool:
    """Whether the process that wrote this record still runs on this machine."""
    try:
        return abs(psutil.Process(record.pid).create_time() - record.process) < 1.0
    except psutil.Error:
        return False


def _node() -> str:
    """Return an id of the machine, its boot and its container: process ids are comparable only within one of them."""
    boot, namespace = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
    try:
        return f"{platform.node()} {boot.read_text().strip()} {namespace.readlink()}"
    except OSError:
        return platform.node()
