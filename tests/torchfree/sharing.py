"""A run on a shared study, in a separate process, with a runner that only sleeps: `python sharing.py ARGUMENTS`.

ARGUMENTS is JSON with `storage`, `log`, and optionally `seconds` (the time of a trial), `node` (the name of another
machine), `limit_s` (after which a silent run counts as dead), `bias` (a factor on all ratios) and `sampler`. The log
has one line per event.
"""

import json
import os
import random
import sys
import tempfile
import time
from dataclasses import replace as with_fields
from functools import partial
from pathlib import Path

from builders import environment, workload
from fakes import FakeClock, FakeRunner

from autocompile.core.goal import Goal
from autocompile.core.progress import Silence
from autocompile.search import session
from autocompile.search.archive import Archive, Beats
from autocompile.search.ledger import Ledger
from autocompile.search.run import Bench, Settings
from autocompile.search.strategy import load_strategy
from autocompile.search.study import presence

STRATEGY = """
[search]
sampler = "{sampler}"
[dimensions]
runtime = ["eager", "inductor"]
mode = []
freezing = []
threads = []
[finals]
candidates = 2
processes = 2
at_most = 2
"""


def ratio_of(plan):
    """The truth, and what compiling takes: nothing is within 2% of the best."""
    ratio = 1.0 if plan.is_eager else 0.7
    options = plan.settings.get("options", {})
    ratio *= 0.6 if options.get("freezing") else 1.0
    ratio *= 0.9 if options.get("max_autotune") else 1.0
    return ratio * (1.3 if plan.threads else 1.0), 0.0 if plan.is_eager else 8.0


class Log(Silence):
    """Writes down what happened, so that whoever is killed has told it."""

    def __init__(self, path):
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, event, plan="", **more):
        line = {"event": event, "plan": plan, "at": time.monotonic(), "pid": os.getpid(), **more}
        os.write(self.file, (json.dumps(line) + "\n").encode())

    def on_trial(self, trial):
        self.write("told", trial.plan.key)


class SleepingRunner(FakeRunner):
    """Each trial takes real time, with its beginning and its end in the log."""

    def measure(self, task, limits):
        if task.artifact:
            return super().measure(task, limits)
        is_final = task.plan in self.ran
        self.log.write("began", task.plan.key, final=is_final or task.seed >= 1000)
        time.sleep(self.naps * random.uniform(0.5, 1.5))
        reply = super().measure(task, limits)
        self.log.write("ended", task.plan.key)
        return reply


def main(storage, log, seconds=0.05, node="", limit_s=2.0, bias=1.0, sampler="policy", gate=""):
    if node:
        presence._node = lambda: node
    session.Archive = partial(Archive, beats=Beats(limit_s / 8, limit_s))
    clock = FakeClock()
    told = Log(log)
    runner = SleepingRunner(lambda plan: (ratio_of(plan)[0] * bias, ratio_of(plan)[1]), clock)
    runner.log, runner.naps = told, seconds
    with tempfile.TemporaryDirectory() as directory:
        strategy = Path(directory) / "strategy.toml"
        strategy.write_text(STRATEGY.format(sampler=sampler))
        runner.directory = Path(directory) / "artifact"
        bench = Bench(
            workload=workload(),
            environment=environment(),
            runner=runner,
            ledger=Ledger(1e6, Silence(), clock=clock),
            listener=told,
            settings=Settings(Goal(calls=10**7, deploy="jit"), load_strategy(str(strategy)), 0, storage),
            reference="reference.pt",
            artifact=runner.directory,
        )
        # Runs differ in their memory, which is not part of the study's name, so they share one study.
        bench = with_fields(bench, environment=environment(memory_bytes=os.getpid()))
        told.write("ready")
        while gate and not Path(gate).exists():
            time.sleep(0.01)
        document = session.run_study(bench)
    winner = document.winner
    said = [decision.reason for decision in document.decisions]
    told.write("won", winner.plan.key, speedup=winner.speedup.value, trials=len(document.trials), said=said)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
