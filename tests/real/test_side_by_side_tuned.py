"""Two workers on this machine: caches filled by another child, and a run killed while one worker is paused."""

import itertools
import json
import signal
import time

import models
import psutil
import torch
from msgspec.structs import replace
from test_tune import SMALL, children_at_work_in, command, start

from autocompile.core.job import CompiledAhead, CompileTask, Limits
from autocompile.core.outcome import Failure, Measurement
from autocompile.core.plan import Plan
from autocompile.runtime.inductor.settings import compiled

# A search whose artifact is packed in a few seconds.
PACKED = """
[search]
max_trials = 5
[dimensions]
runtime = ['openvino']
sizes = []
threads = []
[screening]
precision = 0.1
limit_s = 1.0
[finals]
candidates = 1
processes = 1
limit_s = 1.0
"""


def ahead(laboratory, plan, cache):
    task = CompileTask(laboratory.workload, plan)
    return laboratory.runner.submit(task, Limits(200.0), cache=cache, exclusive=False).answer()


def test_a_trial_finds_in_the_cache_all_that_another_child_compiled(laboratory):
    laboratory.prepare(models.Stack(), torch.randn(4, 32))
    plan = replace(compiled(), batch=8)
    made = ahead(laboratory, plan, "ahead")
    assert isinstance(made, CompiledAhead), made
    assert made.phases_s["compile"] > made.steady_pass_s > 0
    measured = laboratory.trial(plan, cache="ahead")
    assert isinstance(measured, Measurement), measured
    assert measured.counters.cache_hits > 0
    assert measured.counters.cache_misses == 0


def test_what_cannot_be_compiled_fails_ahead_as_it_would_in_its_trial(laboratory):
    laboratory.prepare(torch.nn.Identity(), torch.randn(4, 32))
    failed = ahead(laboratory, compiled(), "nothing-ahead")
    in_trial = laboratory.trial(compiled(), cache="nothing")
    assert isinstance(failed, Failure)
    assert isinstance(in_trial, Failure)
    assert (failed.kind, failed.stage, failed.cause, failed.message) == (
        in_trial.kind, in_trial.stage, in_trial.cause, in_trial.message,
    )  # fmt: skip
    assert isinstance(laboratory.trial(Plan(), cache="eager"), Measurement)


def is_paused(process):
    try:
        return process.status() == psutil.STATUS_STOPPED
    except psutil.NoSuchProcess:
        return False


def test_a_run_that_is_killed_while_one_compiles_and_one_is_timed_leaves_nothing_and_goes_on(tmp_path):
    script, strategy = tmp_path / "net.py", tmp_path / "light.toml"
    script.write_text(SMALL)
    strategy.write_text(PACKED)
    tune = (
        "tune", script, "--budget", "400s", "--calls", "1000000000", "--output", "rec",
        "--strategy", strategy, "--workers", "2", "--json",
    )  # fmt: skip
    process = start(*tune, cwd=tmp_path)
    until = time.monotonic() + 300
    while not any(map(is_paused, children_at_work_in(tmp_path))):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    until = time.monotonic() + 60
    while left := children_at_work_in(tmp_path):
        assert time.monotonic() < until, left
        time.sleep(0.1)
    ran = command(*tune, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout)
    ahead = [entry for entry in document["lanes"] if entry["doing"] == "compiling"]
    measured = [entry for entry in document["lanes"] if entry["doing"] == "measuring"]
    assert ahead
    assert {entry["lane"] for entry in measured} == {0}
    for one, other in itertools.pairwise(measured):
        assert one["ended_s"] <= other["began_s"]
    labels = [entry["label"] for entry in document["trials"]]
    assert len(labels) == len(set(labels))
    assert children_at_work_in(tmp_path) == []
