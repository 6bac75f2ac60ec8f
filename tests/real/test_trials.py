"""Trials in real child processes: what they measure, and how each kind of failure ends."""

import contextlib
import runpy
import signal
import subprocess
import sys
import time

import models
import psutil
import pytest
import torch
from laboratory import Laboratory, reply_to
from msgspec.structs import replace

from autocompile.core.errors import RunnerError
from autocompile.core.job import CaptureTask, Limits
from autocompile.core.outcome import Failure, Measurement
from autocompile.core.plan import Plan
from autocompile.core.workload import Workload
from autocompile.runner.launchers import Spawner
from autocompile.runner.local import LocalRunner
from autocompile.runtime.inductor.settings import compiled
from autocompile.trial import server
from autocompile.workload.capture.script import workload_from_script

BF16 = Plan(autocast="bfloat16")
SQUARE = torch.ones(8, 8)


def test_a_child_that_was_paused_before_it_had_a_group_is_ended_too():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    child.send_signal(signal.SIGSTOP)
    server.kill(child.pid)
    assert child.wait(60) == -signal.SIGKILL


def test_a_compiled_module_is_measured(laboratory):
    torch.manual_seed(0)
    profile = laboratory.prepare(models.Stack().eval(), torch.randn(4, 32))
    assert profile.blocks[0].class_name == "Block"
    assert profile.blocks[0].paths == ("layers.0", "layers.1", "layers.2")
    assert profile.matrix_kernels >= 7
    assert profile.reference == "float64"
    assert profile.deterministic
    assert not profile.random
    assert 0 < profile.error_floor < 1e-5
    found = laboratory.trial(compiled())
    assert isinstance(found, Measurement), found
    assert found.startup.compile_s > 0
    assert found.counters.graphs == 1
    assert found.counters.recompiles == 0
    assert found.accuracy.error <= found.accuracy.limit
    assert found.ratio.low <= found.ratio.value <= found.ratio.high
    assert set(found.phases_s) >= {"load", "build", "compile", "verify", "warm-up", "timing"}


SCRIPT = """
import torch
from torch.nn.functional import gelu

SCALE = 2.0

def helper(x):
    return gelu(x) * SCALE

class Part(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        return helper(self.linear(gelu(x)))

model = torch.nn.Sequential(Part(), Part()).eval()
inputs = torch.ones(4, 8)
"""


@pytest.mark.parametrize("name", ["__main__", "tuned"])
def test_what_a_script_defines_is_compiled_with_its_helpers_and_constants(laboratory, tmp_path, name):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    if name == "__main__":
        defined = runpy.run_path(str(script), run_name="__main__")
        model, inputs = defined["model"], defined["inputs"]
    else:
        model, inputs, _training = workload_from_script(script)
    laboratory.prepare(model, inputs)
    found = laboratory.trial(compiled())
    assert isinstance(found, Measurement), found
    assert found.counters.graphs == 1


def test_every_cache_is_fresh_and_a_named_one_is_kept(laboratory):
    laboratory.prepare(models.Stack().eval(), torch.randn(4, 32))
    plan = compiled()
    first = laboratory.trial(plan, cache="a")
    again = laboratory.trial(plan, cache="a")
    other = laboratory.trial(plan, cache="b")
    assert first.counters.cache_hits == 0
    assert again.counters.cache_hits > 0
    assert other.counters.cache_hits == 0
    laboratory.runner.forget("a")
    assert laboratory.trial(plan, cache="a").counters.cache_hits == 0


def test_blocks_share_one_compiled_program(laboratory):
    profile = laboratory.prepare(models.Stack().eval(), torch.randn(4, 32))
    found = laboratory.trial(compiled(scope=profile.blocks[0].paths))
    assert isinstance(found, Measurement), found
    assert found.counters.graphs == 1


@pytest.mark.parametrize(
    "plan",
    [
        Plan(autocast="bfloat16"),
        Plan(memory_format="channels_last", threads=1),
        replace(compiled(options={"freezing": True}), memory_format="channels_last"),
    ],
    ids=["amp", "layout", "freezing"],
)
def test_other_plans_are_measured(laboratory, plan):
    laboratory.prepare(models.Convolution().eval(), torch.randn(2, 3, 16, 16))
    assert isinstance(laboratory.trial(plan), Measurement)


def test_several_signatures_are_measured_together(laboratory):
    laboratory.prepare(models.Stack().eval(), [torch.randn(n, 32) for n in (2, 3, 5)])
    assert len(laboratory.workload.signatures) == 3
    found = laboratory.trial(compiled(dynamic=True))
    assert isinstance(found, Measurement), found
    assert found.counters.recompiles == 0


def test_state_is_the_candidates_own(laboratory):
    laboratory.prepare(models.Counting(), torch.randn(4))
    assert isinstance(laboratory.trial(compiled()), Measurement)


@pytest.mark.parametrize(
    ("model", "limits", "kind", "said"),
    [
        (models.sleeps, Limits(4.0), "timeout", "killed after"),
        (models.segfaults, None, "crash", "SIGSEGV"),
        (models.allocates, Limits(60.0, memory_bytes=2 << 30), "out_of_memory", "allocate memory"),
        (models.answers_nan, None, "wrong_result", "NaN"),
        (models.raises_unpicklable, None, "error", "Local"),
        (models.exits, None, "error", "SystemExit"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_every_way_to_fail_is_a_value_and_the_next_trial_runs(laboratory, model, limits, kind, said):
    laboratory.prepare(model, SQUARE)
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    failed = laboratory.trial(BF16, limits)
    assert isinstance(failed, Failure)
    assert failed.kind == kind
    assert said in failed.message
    assert isinstance(laboratory.trial(Plan()), Measurement)
    after = {process.pid for process in psutil.Process().children(recursive=True)}
    assert after <= before, "a child was left running"


def test_several_tasks_take_turns_and_one_that_is_cancelled_makes_room(laboratory):
    laboratory.prepare(models.sleeps, SQUARE)
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    quick, stuck, following = (laboratory.submit(plan) for plan in (Plan(), BF16, Plan()))
    assert isinstance(quick.answer(), Measurement)
    assert not stuck.is_done()
    stuck.cancel()
    assert isinstance(following.answer(), Measurement)
    assert quick.span_s[1] <= stuck.span_s[0] <= stuck.span_s[1] <= following.span_s[0]
    with pytest.raises(RunnerError, match="was cancelled"):
        stuck.answer()
    after = {process.pid for process in psutil.Process().children(recursive=True)}
    assert after <= before, "a child was left running"


def test_a_compile_is_ended_at_its_own_limit(laboratory):
    laboratory.prepare(models.Stack(depth=6).eval(), torch.randn(4, 32))
    failed = laboratory.trial(compiled(), Limits(60.0, compile_s=0.3), cache="cut")
    assert isinstance(failed, Failure)
    assert (failed.kind, failed.stage) == ("timeout", "compile")


def test_a_model_that_rejects_its_inputs_is_a_failure_with_the_users_line(runner, tmp_path):
    laboratory = Laboratory(runner, tmp_path)
    with pytest.raises(AssertionError, match=r"Given normalized_shape=\[32\]"):
        laboratory.prepare(models.Stack(), torch.randn(4, 7))


def test_a_child_can_be_spawned_where_none_can_be_forked(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import torch\nmodel = torch.sin\ninputs = torch.ones(3)\nprint('noise')\n")

    def spawner(name):
        return Spawner(tmp_path / name, tmp_path)

    with LocalRunner(tmp_path / "jobs", tmp_path / "seed", launch=spawner) as runner:
        reply = reply_to(runner, CaptureTask(str(script), str(tmp_path / "workload")), Limits(60.0), cache="capture")
        assert isinstance(reply, Workload), reply
        slow = tmp_path / "slow.py"
        slow.write_text("import time\ntime.sleep(600)\n")
        ended = reply_to(runner, CaptureTask(str(slow), str(tmp_path / "workload")), Limits(15.0), cache="capture")
        assert isinstance(ended, Failure)
        assert ended.kind == "timeout"


@pytest.mark.parametrize(("dies", "begun"), [("server", 1), ("server and child", 2), ("idle server", 1)])
def test_a_server_that_is_killed_is_replaced_and_what_it_ran_is_not_lost(tmp_path, dies, begun):
    marks, script = tmp_path / "marks", tmp_path / "script.py"
    script.write_text(
        f"import time, torch\nopen({str(marks)!r}, 'a').write('begun ')\ntime.sleep(1.5)\n"
        "model = torch.sin\ninputs = torch.ones(3)\n"
    )
    before = servers()
    with LocalRunner(tmp_path / "jobs", tmp_path / "seed") as runner:
        (served_by,) = servers() - before
        if dies == "idle server":
            kill_and_wait(served_by)
        task = CaptureTask(str(script), str(tmp_path / "workload"))
        pending = runner.submit(task, Limits(60.0), cache="capture", exclusive=False)
        if dies != "idle server":
            wait_until(marks.exists)
            child = served_by.children() if "child" in dies else []
            for process in (served_by, *child):
                kill_and_wait(process)
        assert isinstance(pending.answer(), Workload)
        assert marks.read_text().split() == ["begun"] * begun
        after = reply_to(runner, CaptureTask(str(script), str(tmp_path / "after")), Limits(60.0), cache="capture")
        assert isinstance(after, Workload)
    assert servers() <= before


def servers():
    return {one for one in psutil.Process().children() if "autocompile.trial.server" in " ".join(one.cmdline())}


def kill_and_wait(process):
    process.kill()
    with contextlib.suppress(psutil.NoSuchProcess):
        process.wait(60)


def wait_until(happened):
    until = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_model_without_a_tensor_output_is_refused(laboratory):
    with pytest.raises(AssertionError, match=r"the model returns no tensor \(str\)"):
        laboratory.prepare(models.returns_text, SQUARE)


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (models.returns_a_class_of_its_own, SQUARE),
        (models.Averaging(), torch.randn(3, 4)),
        (models.writes_into_its_input, torch.ones(4)),
        (models.Stack().bfloat16().eval(), torch.randn(4, 32).bfloat16()),
        (torch.cumsum, (torch.ones(1, 5).expand(3, 5), 0)),
    ],
    ids=["own class", "replaced buffer", "written input", "bfloat16", "expanded input"],
)
def test_unusual_models_are_measured(laboratory, model, inputs):
    laboratory.prepare(model, inputs)
    for plan in (Plan(), compiled()):
        found = laboratory.trial(plan, cache=f"{laboratory.directory.name}-{plan.key}")
        assert isinstance(found, Measurement), found


def test_what_a_trial_leaves_running_is_ended(laboratory):
    laboratory.prepare(models.starts_something, SQUARE)
    assert isinstance(laboratory.trial(Plan()), Measurement)
    left = [process.info for process in psutil.process_iter(["cmdline"]) if "777.25" in (process.info["cmdline"] or ())]
    assert left == []


def test_a_module_that_computes_when_imported_does_not_hang_the_trials(tmp_path, monkeypatch):
    (tmp_path / "computes_at_import.py").write_text(
        "import torch\n"
        "TABLE = torch.ones(2000, 2000) @ torch.ones(2000, 2000)\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x @ x\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from computes_at_import import Net

    with LocalRunner(tmp_path / "jobs", tmp_path / "seed") as runner:
        laboratory = Laboratory(runner, tmp_path)
        laboratory.prepare(Net(), torch.ones(1000, 1000), preload=True)
        assert isinstance(laboratory.trial(Plan(), Limits(30.0)), Measurement)
