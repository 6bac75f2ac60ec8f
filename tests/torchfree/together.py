"""Run several processes of `sharing.py` at once, and check their logs."""

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

from places import REPOSITORY

HERE = Path(__file__).parent
_GIVE_UP_S = 240.0


class Run:
    """One of them; its log is a file of its own."""

    def __init__(self, directory, name, storage, **settings):
        self.log, self.said = directory / f"{name}.jsonl", directory / f"{name}.txt"
        path = [str(REPOSITORY), str(HERE), str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH", "")])]
        given = json.dumps({"storage": storage, "log": str(self.log), **settings})
        with self.said.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, HERE / "sharing.py", given],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
                stdout=output,
                stderr=subprocess.STDOUT,
            )  # fmt: skip
        self.killed_at = None

    @property
    def events(self):
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [json.loads(line) for line in lines]

    def wait_for(self, count, event="began"):
        """Until it has told of so many events, or ended."""
        until = time.monotonic() + _GIVE_UP_S
        while sum(one["event"] == event for one in self.events) < count and self.process.poll() is None:
            assert time.monotonic() < until, self.said.read_text()
            time.sleep(0.02)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.killed_at = time.monotonic()

    @property
    def won(self):
        """What it says at its end."""
        assert self.process.wait(_GIVE_UP_S) == 0, self.said.read_text()
        return self.events[-1]


def restart(server):
    """Kill a PostgreSQL server, and start it again; its recovery takes as long as the disk wants."""
    process = server._postmaster_info.process
    process.kill()
    process.wait(60)
    until = time.monotonic() + _GIVE_UP_S
    while True:
        try:
            server.ensure_postgres_running()
        except subprocess.SubprocessError:
            assert time.monotonic() < until, "the server does not come back"
        else:
            return


def faults(runs):
    """What was measured twice, or twice at a time, or lost, in words; all that were not killed must have ended."""
    found, spans = [], defaultdict(list)
    for run in runs:
        for began, following in _pairs(run.events):
            ended = following["at"] if following else run.killed_at
            spans[began["plan"], began["final"]].append((began["at"], ended, run, following is not None))
    for (plan, is_final), measured in spans.items():
        measured.sort(key=lambda span: span[0])
        for (_began, ended, *_), (began, *_) in pairwise(measured):
            if began < ended:
                found.append(f"{plan} was measured twice at a time")
        survivors = [run for _began, _ended, run, _whole in measured if run.killed_at is None]
        if not is_final and len(survivors) > 1:
            found.append(f"{plan} was measured {len(survivors)} times")
        told = [run for run in runs if run.killed_at is not None and plan in _told(run)]
        if not is_final and told and survivors:
            found.append(f"{plan} was measured again after it had been told")
    won = [run.won for run in runs if run.killed_at is None]
    if len({one["trials"] for one in won}) > 1:
        found.append(f"they know different trials: {[one['trials'] for one in won]}")
    known = {plan for run in runs for plan in _told(run)}
    if any(one["trials"] < len(known) for one in won):
        found.append("a trial that was told is lost")
    return found


def _pairs(events):
    """Each trial's beginning with its end, None if it was cut."""
    began = None
    for event in events:
        if event["event"] == "began":
            began = event
        elif event["event"] == "ended":
            yield began, event
            began = None
    if began is not None:
        yield began, None


def _told(run):
    """Its own trials that it has told of."""
    ended = {began["plan"] for began, end in _pairs(run.events) if end and not began["final"]}
    return {event["plan"] for event in run.events if event["event"] == "told"} & ended
