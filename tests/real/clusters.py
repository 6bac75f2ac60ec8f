"""The workload and the helpers for tests on clusters."""

import os
import signal
import subprocess
import sys
import time

import psutil
import torch
from torch import nn

import autocompile
from autocompile.core.goal import Goal
from autocompile.core.progress import Silence
from autocompile.runner.workers import Workers
from autocompile.search.run import Settings
from autocompile.search.strategy import load_strategy
from autocompile.tuning import Request, tune
from autocompile.workload.spool import spool

# More than these runs need even on a busy machine: they end when their strategy ends.
AMPLE_S = 500.0
PATIENCE_S = 120.0
OWNED = "AUTOCOMPILE_TEST_CLUSTER"
# Two programs are packed, so that each machine packs one.
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
    """Processes of a cluster here, by their roles; whichever was killed is started again when the cluster is asked for.

    Its one worker counts as a machine of its own; `there` is in the words of what happens on that.
    """

    engine, there = "", ""

    def __init__(self, directory):
        self.directory, self.running = directory, {}

    def ready(self):
        """Its address, once its worker is there."""
        raise NotImplementedError

    def is_running(self, role):
        return role in self.running and self.running[role].poll() is None

    def start(self, role, *command):
        with (self.directory / f"{role}.log").open("ab") as log:
            self.running[role] = subprocess.Popen(
                [sys.executable, "-m", *map(str, command)], stdout=log, stderr=log,
                env={**os.environ, OWNED: str(self.directory)},
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
        """What the worker started for a run, and what that did, whoever is its parent now."""
        own = {process.pid for process in self.running.values()}
        return [process for process in psutil.process_iter() if process.pid not in own and self.is_of_it(process)]

    def is_of_it(self, process):
        """Whether it was started beneath the worker for a run."""
        return self.is_beneath(process)

    def is_beneath(self, process):
        try:
            return process.environ().get(OWNED) == str(self.directory)
        except psutil.Error:
            return False

    def others(self):
        """The children of this process that are no part of the cluster. One that was killed shows no environment."""
        own = {process.pid for process in self.running.values()}
        children = psutil.Process().children(recursive=True)
        return {one.pid for one in children if one.pid not in own and not self.is_beneath(one)}

    def is_there(self, words):
        return self.there in words


def wait_until(happened):
    until = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.05)


class Watching(Silence):
    """Calls `then` when the cluster's worker is first seen doing what is waited for."""

    def __init__(self, cluster, doing="", then=lambda: None):
        self.cluster, self.doing, self.then, self.was_seen, self.said = cluster, doing, then, False, []

    def on_lanes(self, lanes):
        seen = (lane for lane in lanes if self.cluster.is_there(lane) and lane.startswith(self.doing))
        if self.doing and not self.was_seen and any(seen):
            self.was_seen = True
            self.then()

    def on_decision(self, decision):
        if self.cluster.is_there(decision.subject):
            self.said.append(decision.reason)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 8)).eval(), torch.randn(16, 64)


def tuned(cluster, tmp_path, listener):
    """The document of a run that goes to its end and leaves nothing running; nothing is measured twice."""
    workers = Workers(engine=cluster.engine, address=cluster.ready(), apart=True)
    before = cluster.others()
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
    assert cluster.others() <= before
    assert not (tmp_path / "rec" / ".work").exists()
    return document


def check_a_run(cluster, tmp_path):
    """Candidates are packed and measured there and here, and the winner is served."""
    document = tuned(cluster, tmp_path, Watching(cluster))
    assert {entry.doing for entry in document.lanes if cluster.is_there(entry.machine)} == {"compiling", "measuring"}
    assert {entry.doing for entry in document.lanes if not entry.machine} == {"compiling", "measuring"}
    model, inputs = net()
    served = autocompile.load(str(tmp_path / "rec"), model)
    with torch.no_grad():
        torch.testing.assert_close(served(inputs), model(inputs), rtol=1e-3, atol=1e-4)
    assert served.status.runtime == document.winner.plan.runtime


def check_a_kill(cluster, tmp_path, victim, doing):
    """The study goes on when a process of the cluster is killed while its worker is at something."""
    watching = Watching(cluster, doing, lambda: cluster.kill_at_work(victim))
    tuned(cluster, tmp_path, watching)
    assert watching.was_seen
    assert cluster.running[victim].wait(PATIENCE_S) == -signal.SIGKILL
    told = [reason for reason in watching.said if "its candidates are tried elsewhere" in reason]
    assert len(told) == 1, watching.said
