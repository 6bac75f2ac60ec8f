"""Goals with real child processes: proved batches, sizes that do not fit, and compilations that cannot pay off."""

import json
import sqlite3

import models
import pytest
import torch
from laboratory import reply_to
from msgspec.structs import replace
from test_tune import AMPLE, EAGER_ONLY, LIGHT, SMALL, command
from torch import nn

import autocompile
from autocompile.artifact.directory import read_document
from autocompile.core.errors import GoalUnmet, InvalidValue
from autocompile.core.job import BatchProbe, BatchTask, Limits
from autocompile.core.outcome import Failure, Measurement
from autocompile.core.plan import Plan
from autocompile.runtime.inductor.settings import compiled
from autocompile.trial.check.batch_proof import prove_batch
from autocompile.workload.call import Call
from autocompile.workload.samples import Sample
from autocompile.workload.spool import spool


def probed(laboratory, model, inputs, *, sizes=(), below=0, limits=None):
    workload = spool(model, inputs, laboratory.directory / "probe")
    return reply_to(laboratory.runner, BatchTask(workload, sizes, below), limits or Limits(60.0), cache="profile")


class Normalized(nn.Module):
    """In training mode a sample's output depends on the others in its batch."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)

    def forward(self, x):
        return self.norm(self.linear(x))


@pytest.mark.parametrize("size", [1, 6])
def test_independent_samples_are_proved_to_be(size):
    proof = prove_batch(Call(models.Stack().eval()), Sample((torch.randn(size, 32),), {}))
    assert (proof.size, proof.problem) == (size, "")


@pytest.mark.parametrize("size", [1, 6])
def test_batch_statistics_are_seen_and_leave_no_trace(size):
    model = Normalized().eval()
    assert not prove_batch(Call(model), Sample((torch.randn(size, 8),), {})).problem
    model.train()
    before = model.norm.running_mean.clone()
    assert "influence each other" in prove_batch(Call(model), Sample((torch.randn(max(size, 2), 8),), {})).problem
    assert torch.equal(model.norm.running_mean, before)


def test_what_has_no_batch_axis_is_said():
    assert (
        "not every output has a batch axis"
        in prove_batch(Call(lambda x: x.sum()), Sample((torch.randn(4, 3),), {})).problem
    )
    two = Sample((torch.randn(4, 3), torch.randn(3, 5)), {})
    assert "first axes differ in size: [3, 4]" in prove_batch(Call(lambda x, y: x @ y), two).problem
    fixed = prove_batch(Call(lambda x: x.reshape(4, 3)), Sample((torch.randn(4, 3),), {}))
    assert "accepts no other batch size" in fixed.problem


def test_sizes_are_probed_by_doubling(laboratory):
    found = probed(laboratory, models.Stack().eval(), torch.randn(1, 32))
    assert isinstance(found, BatchProbe), found
    assert [point.size for point in found.points[:4]] == [1, 2, 4, 8]
    assert found.points[3].sample_ms < found.points[0].sample_ms


class Hungry(nn.Module):
    """Takes 64 MiB for each sample."""

    def forward(self, x):
        return torch.ones(x.shape[0], 1 << 24).sum(1, keepdim=True) + x


def test_a_size_that_does_not_fit_is_recorded_and_the_smaller_ones_stand(laboratory):
    limits = Limits(60.0, memory_bytes=3 << 30)
    found = probed(laboratory, Hungry(), torch.ones(1, 4), sizes=(1, 4, 256), limits=limits)
    assert isinstance(found, BatchProbe), found
    assert [point.size for point in found.points] == [1, 4, 256]
    assert "memory" in found.points[-1].problem
    assert all(point.sample_ms for point in found.points[:2])


def test_a_batch_is_measured_per_sample_and_its_outputs_are_checked(laboratory):
    laboratory.prepare(models.Stack(width=64).eval(), torch.randn(1, 64))
    for plan in (Plan(batch=64), replace(compiled(), batch=64)):
        found = laboratory.trial(plan)
        assert isinstance(found, Measurement), found
        assert found.batch_factor == 64
        per_call = found.latency.mean_ms / found.baseline.mean_ms
        # The ratio is per sample, 1/64 of a call. On a busy machine the two numbers can differ by some factor.
        assert found.ratio.value < per_call / 4
        assert found.accuracy.error <= found.accuracy.limit


def test_a_packed_winner_of_another_batch_serves_that_batch(laboratory):
    model = models.Stack(width=64).eval()
    laboratory.prepare(model, torch.randn(1, 64))
    plan = replace(compiled(), batch=8)
    artifact = laboratory.pack(plan)
    assert not isinstance(artifact, Failure), artifact
    loaded, batch = autocompile.load(artifact, model), torch.randn(8, 64)
    assert torch.allclose(loaded(batch), model(batch), atol=1e-5)
    assert loaded.status.calls == {"aot": 1}


def test_a_first_call_that_cannot_pay_back_is_ended_at_the_bound(tmp_path):
    """A candidate that sleeps in its first call stands for a slow compile: it may take what the best takes in all."""
    (tmp_path / "eager.toml").write_text(EAGER_ONLY)
    goal = autocompile.Goal(calls=1000)
    rec = autocompile.optimize(
        models.sleeps, torch.randn(256, 256), "400s", goal=goal, strategy=str(tmp_path / "eager.toml"), progress=False
    )
    slow = [entry for entry in rec.trials if entry.config["amp"] != "off"]
    assert slow
    assert all(entry.failure.kind == "timeout" and entry.failure.stage == "compile" for entry in slow)
    # They end at the limit, not after the 600 s of sleep and not at the end of the search.
    assert all(entry.failure.phases_s["compile"] < 120 for entry in slow)
    assert any("compiling alone took more than the" in decision.reason for decision in rec.decisions)
    assert rec.config["runtime"] == "eager"


def test_batches_are_tuned_from_the_command_line(tmp_path):
    (tmp_path / "net.py").write_text(SMALL.replace("torch.randn(16, 64)", "torch.randn(1, 64)"))
    (tmp_path / "light.toml").write_text(LIGHT.replace("max_trials = 4", "max_trials = 6"))
    ended = command(
        "tune", "net.py", "--budget", AMPLE, "--strategy", "light.toml", "--objective", "throughput", "--batch", "1,8",
        "--output", "rec", "--json", "--quiet", cwd=tmp_path,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    measured = [entry for entry in document["trials"] if entry["status"] == "measured"]
    # Only a quiet machine can tell which one is the fastest, so this is not checked.
    assert {8, None} <= {entry["batch"] for entry in measured}
    assert document["winner_as_given"]["batch"] is None
    assert document["goal"]["objective"] == "throughput"
    report = (tmp_path / "rec" / "report.html").read_text()
    assert "<polyline" in report
    shown = command("show", "rec", "--calls", "1", "--json", cwd=tmp_path)
    assert json.loads(shown.stdout)["calls"] == 1
    (value_name,) = (
        sqlite3.connect(tmp_path / "rec" / "study.db")
        .execute("select value_json from study_system_attributes where key = 'study:metric_names'")
        .fetchone()
    )
    assert "seconds per call's worth of samples" in value_name


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--batch", "8"], "batch: not every output has a batch axis; keep the batch fixed"),
        (["--horizon", "1ns"], "horizon: cannot read '1ns' as a duration"),
        (["--horizon", "1us"], "horizon: 1e-06 s is shorter than one call"),
        (["--percentile", "99"], "percentile: neither the objective nor a limit is a latency"),
        (["--calls", "5", "--objective", "latency"], "calls: the objective latency ignores start-up"),
    ],
)
def test_goals_that_cannot_be_are_one_line(tmp_path, options, said):
    script = "import torch\ndef model(x):\n    return x.sum()\ninputs = torch.randn(4, 3)\n"
    (tmp_path / "net.py").write_text(script)
    ended = command("tune", "net.py", "--budget", "60s", *options, "--output", "rec", "--quiet", cwd=tmp_path)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1


def test_an_unmet_goal_is_an_error_where_that_is_asked_for(tmp_path):
    strategy = tmp_path / "eager.toml"
    strategy.write_text(EAGER_ONLY)
    model, inputs, goal = models.Stack().eval(), torch.randn(4, 32), autocompile.Goal(max_latency="1us")
    with pytest.raises(GoalUnmet, match=r"goal: max_latency 1 µs is missed by .* comes nearest of all") as unmet:
        autocompile.optimize(
            model, inputs, "3m", goal=goal, strategy=str(strategy), output=tmp_path / "rec", progress=False,
            on_unmet="error",
        )  # fmt: skip
    assert "\n" not in str(unmet.value)
    nearest = unmet.value.recommendation
    assert nearest.document.winner.verdict == "nearest"
    assert read_document(tmp_path / "rec") == nearest.document
    assert torch.equal(autocompile.load(tmp_path / "rec", model)(inputs), nearest.module(inputs))


def test_what_to_do_about_an_unmet_goal_is_one_of_two_words():
    with pytest.raises(InvalidValue, match="on_unmet: 'raise' is unknown; give 'nearest' or 'error'"):
        autocompile.optimize(models.Stack(), torch.randn(4, 32), on_unmet="raise")
