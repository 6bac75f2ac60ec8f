"""A run on a dask cluster: a scheduler and a worker, each a process here; the worker counts as a machine of its own."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
import torch
from distributed import Client
from torch import nn

import autocompile
from autocompile.core.goal import Goal
from autocompile.core.progress import Silence
from autocompile.runner.workers import Workers
from autocompile.search.run import Settings
from autocompile.search.strategy import load_strategy
from autocompile.tuning import Request, tune
from autocompile.workload.spool import spool

# More than these runs take, also beside something else that uses the machine: they end when their strategy does.
AMPLE_S = 500.0
PATIENCE_S = 120.0
OWNED = "AUTOCOMPILE_TEST_CLUSTER"
# Two programs that are packed, so that one is at each machine.
STRATEGY = """
[search]
max_trials = 3
[dimensions]
runtime = ['onnxruntime']
sizes = []
[screening]
precision = 0.2
limit_s = 0.5
[finals]
candidates = 1
processes = 1
limit_s = 0.5
"""


class Cluster:
    """A scheduler and a worker of it; whichever was killed is started again when the cluster is asked for."""

    def __init__(self, directory):
        self.directory, self.running, self.address = directory, {}, ""

    def ready(self):
        """The scheduler's address, once a worker is there."""
        if not self.is_running("scheduler"):
            self.end("worker")
            told = self.directory / "scheduler.json"
            told.unlink(missing_ok=True)
            self.start("scheduler", "--host", "127.0.0.1", "--port", 0, "--scheduler-file", told)
            wait_until(told.exists)
            self.address = json.loads(told.read_text())["address"]
        if not self.is_running("worker"):
            options = ("--nthreads", 1, "--no-nanny", "--local-directory", self.directory)
            self.start("worker", self.address, *options)
        with Client(self.address, timeout=PATIENCE_S) as client:
            client.wait_for_workers(1, timeout=PATIENCE_S)
        return self.address.removeprefix("tcp://")

    def is_running(self, role):
        return role in self.running and self.running[role].poll() is None

    def start(self, role, *arguments):
        with (self.directory / f"{role}.log").open("ab") as log:
            self.running[role] = subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{role}", *map(str, arguments), "--no-dashboard"],
                stdout=log, stderr=log, env={**os.environ, OWNED: str(self.directory)},
            )  # fmt: skip

    def kill_at_work(self, role):
        """While a child of the agent runs, if it does not come and go unseen."""
        before, until = len(self.brought()), time.monotonic() + 5
        while len(self.brought()) <= before and time.monotonic() < until:
            time.sleep(0.01)
        self.running[role].send_signal(signal.SIGKILL)

    def end(self, role):
        if self.is_running(role):
            self.running[role].kill()
            self.running[role].wait()

    def brought(self):
        """What the worker started, and what that did, whoever is its parent now."""
        own = {process.pid for process in self.running.values()}
        return [process for process in psutil.process_iter() if process.pid not in own and self.is_of_it(process)]

    def is_of_it(self, process):
        try:
            return process.environ().get(OWNED) == str(self.directory)
        except psutil.Error:
            return False


def wait_until(happened):
    until = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = Cluster(tmp_path_factory.mktemp("dask"))
    yield made
    made.end("worker")
    made.end("scheduler")


class Watching(Silence):
    """Calls `then` when the worker is first seen doing what is waited for."""

    def __init__(self, doing="", then=lambda: None):
        self.doing, self.then, self.was_seen, self.said = doing, then, False, []

    def on_lanes(self, lanes):
        if self.doing and not self.was_seen and any(is_there(lane) and lane.startswith(self.doing) for lane in lanes):
            self.was_seen = True
            self.then()

    def on_decision(self, decision):
        self.said.append((is_there(decision.subject), decision.reason))


def is_there(words):
    return "(tcp://127.0.0.1:" in words


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 8)).eval(), torch.randn(16, 64)


def tuned(cluster, tmp_path, listener):
    """The document of a run that goes to its end and leaves nothing running; nothing is measured twice."""
    workers = Workers(engine="dask", address=cluster.ready(), apart=True)
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    strategy = tmp_path / "strategy.toml"
    strategy.write_text(STRATEGY)
    settings = Settings(Goal(calls=10**9), load_strategy(str(strategy)), 0, None)
    document = tune(
        lambda _home, directory, _budget_s: spool(*net(), directory),
        Request(settings, AMPLE_S, str(tmp_path / "rec"), workers=workers),
        listener,
    )
    assert document.complete, document.stopped
    labels = [entry.label for entry in document.trials]
    assert len(labels) == len(set(labels)) == 3
    measured = [entry.label for entry in document.lanes if entry.doing == "measuring"]
    assert sorted(measured) == sorted(set(labels) - {document.baseline.label})
    wait_until(lambda: not cluster.brought())
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before
    assert not (tmp_path / "rec" / ".work").exists()
    return document


def test_candidates_are_packed_and_measured_there_and_the_winner_is_served(cluster, tmp_path):
    document = tuned(cluster, tmp_path, Watching())
    assert {entry.doing for entry in document.lanes if is_there(entry.machine)} == {"compiling", "measuring"}
    assert {entry.doing for entry in document.lanes if not entry.machine} == {"compiling", "measuring"}
    model, inputs = net()
    served = autocompile.load(str(tmp_path / "rec"), model)
    with torch.no_grad():
        torch.testing.assert_close(served(inputs), model(inputs), rtol=1e-3, atol=1e-4)
    assert served.status.runtime == document.winner.plan.runtime


@pytest.mark.parametrize(("victim", "doing"), [("worker", "compiling"), ("scheduler", "measuring")])
def test_a_study_goes_on_when_one_of_the_cluster_is_killed_at_work(cluster, tmp_path, victim, doing):
    watching = Watching(doing, lambda: cluster.kill_at_work(victim))
    tuned(cluster, tmp_path, watching)
    assert watching.was_seen
    assert cluster.running[victim].wait(PATIENCE_S) == -signal.SIGKILL
    told = [reason for is_of_it, reason in watching.said if is_of_it and "what it was at is tried elsewhere" in reason]
    assert len(told) == 1, watching.said
