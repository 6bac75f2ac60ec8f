"""A training script with a recommendation applied: its own loop, with its model and optimizer as planned."""

import re
import subprocess
import sys
from functools import cache

import pytest
from laboratory import reply_to
from msgspec.structs import replace

from autocompile.artifact.integrity import write_manifest
from autocompile.artifact.mismatch import requirements
from autocompile.artifact.trained_script import TrainedScript
from autocompile.core.errors import InvalidRecommendation
from autocompile.core.job import CaptureTask, Limits
from autocompile.core.manifest import MANIFEST_VERSION, Manifest
from autocompile.core.plan import Plan
from autocompile.core.workload import Workload
from autocompile.runtime.catalogue import kind_of

PLANS = {
    "fused": Plan(optimizer="fused"),
    "compiled": Plan(runtime="inductor"),
    "compiled in blocks": Plan(runtime="inductor", settings={"scope": ["into", "out"]}),
    "reduced": Plan(autocast="bfloat16", optimizer="foreach"),
    "attention": Plan(attention="math"),
}
# Allowed differences, relative to the numbers that the script prints.
NEAR = {"reduced": 0.05}
DRIVER = """
import sys
from pathlib import Path
from autocompile.artifact.trained_script import TrainedScript
from autocompile.workload.watching.main import run_as_main
served = TrainedScript(Path(sys.argv[1]))
try:
    with served.applied():
        run_as_main(Path(sys.argv[2]), sys.argv[3:])
finally:
    for one in served.services():
        print(one.kind, one.label, one.calls, one.left, one.notes, file=sys.stderr)
"""
BROKEN = """
import torch
@torch._dynamo.register_backend
def broken(graph, inputs):
    raise RuntimeError("this backend is broken")
"""
SCRIPT = """\
import sys
import torch
import torch.nn.functional as F
from torch import nn

class Head(nn.Linear):  # a class of its own, because the compiler skips calls of torch's own layers
    def forward(self, x):
        return F.linear(x, self.weight, self.bias)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.norm, self.out = nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16), Head(16, 3)

    def forward(self, x):
        return {"logits": self.out(self.norm(self.into(x)).relu())}

def by_closure(net):
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=4)
    x, y = torch.randn(12, 8), torch.randint(3, (12,))
    calls = []
    def closure():
        calls.append(1)
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x)["logits"], y)
        loss.backward()
        return loss
    for step in range(3):
        print(f"{optimizer.step(closure).item():.4f} after {len(calls)} calls")

def main(what):
    torch.manual_seed(0)
    net, other = Net(), nn.Linear(8, 3)
    if what == "by closure":
        return by_closure(net)
    if what == "wrapped":
        net.forward = torch.autocast("cpu", torch.bfloat16)(net.forward)
    if what == "compiled in place":
        net.compile(backend="eager")
    if what == "telling":
        linear, is_fused = F.linear, torch.backends.cuda.flash_sdp_enabled
        F.linear = lambda *args: (print("forward:", is_fused(), file=sys.stderr), linear(*args))[1]
    scaler = torch.amp.GradScaler("cpu", enabled=what == "scaled")
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    for step in range(6):
        net.train()
        if what == "exchanged" and step == 3:
            optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        x, y = torch.randn(12, 8), torch.randint(3, (12,))
        if what == "other":
            return print(other(x).shape)
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x)["logits"].float(), y)
        if what == "telling":
            loss.register_hook(lambda _gradient: print("backward:", is_fused(), file=sys.stderr))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        if what != "exchanged":
            schedule.step()
        if what == "saved" and step == 2:
            torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, "half.pt")
        if what == "resumed" and step == 0:
            saved = torch.load("half.pt")
            net.load_state_dict(saved["net"])
            optimizer.load_state_dict(saved["optimizer"])
        net.eval()
        if what == "gradients in evaluation":
            net(x)
        with torch.no_grad():
            print(f"{loss.item():.4f} {net(x)['logits'].double().norm().item():.4f}")
    if what == "exit":
        sys.exit(7)
    if what == "compiled in place":
        print("compiled:", net._compiled_call_impl, file=sys.stderr)
    print(list(net.state_dict()), sorted(optimizer.state_dict()["param_groups"][0].items(), key=str)[:3], type(net))

main(*sys.argv[1:])
"""


@pytest.fixture(scope="module")
def workload(runner, tmp_path_factory):
    directory = tmp_path_factory.mktemp("training")
    (directory / "train.py").write_text(SCRIPT)
    task = CaptureTask(str(directory / "train.py"), str(directory / "workload"), arguments=("plain",))
    found = reply_to(runner, task, Limits(120.0), cache="capture")
    assert isinstance(found, Workload), found
    return found


def recommended(workload, plan, directory):
    """What a search leaves, for this plan."""
    manifest = Manifest(
        manifest_version=MANIFEST_VERSION,
        label="recommended",
        plan=plan,
        device_type="cpu",
        identity=workload.identity,
        serving=kind_of(plan).unpacked,
        absences=(),
        requirements=requirements(plan.runtime, with_python=False, device_type="cpu"),
        training=workload.training,
        signatures=workload.signatures,
    )
    directory.mkdir()
    write_manifest(directory, manifest)
    return directory


def run(directory, *command):
    return subprocess.run([sys.executable, *command], check=False, cwd=directory, capture_output=True, text=True)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Runs the script without anything, once for each of its ways."""
    directory = tmp_path_factory.mktemp("plain")
    (directory / "train.py").write_text(SCRIPT)
    return cache(lambda what: run(directory, "train.py", what))


@pytest.fixture(scope="module", params=PLANS)
def served(request, workload, tmp_path_factory):
    """Runs the script with a plan."""
    directory = tmp_path_factory.mktemp(request.param.replace(" ", "-"))
    rec = recommended(workload, PLANS[request.param], directory / "rec")
    (directory / "train.py").write_text(SCRIPT)
    (directory / "driver.py").write_text(DRIVER)

    def with_plan(what, *, plain=False):
        return run(directory, *([] if plain else ["driver.py", str(rec)]), "train.py", what)

    with_plan.near = NEAR.get(request.param, 1e-3)
    return with_plan


def numbers(text):
    return [float(one) for one in re.findall(r"-?\d+\.\d+", text)]


def words(text):
    return re.sub(r"-?\d+\.\d+", "#", text)


def assert_same(ours, plain, near):
    assert ours.returncode == plain.returncode, ours.stderr
    assert words(ours.stdout) == words(plain.stdout)
    assert numbers(ours.stdout) == pytest.approx(numbers(plain.stdout), rel=near, abs=near / 5)


@pytest.mark.parametrize("what", ["gradients in evaluation", "exit", "exchanged"])
def test_a_script_prints_what_it_prints_without(served, plain, what):
    ours = served(what)
    assert_same(ours, plain(what), served.near)
    assert "training recommended {" in ours.stderr
    assert ("the other mode" in ours.stderr) == (what == "gradients in evaluation")


def run_with(workload, plan, what, directory):
    rec = recommended(workload, PLANS[plan], directory / "rec")
    (directory / "train.py").write_text(SCRIPT)
    (directory / "driver.py").write_text(DRIVER)
    return run(directory, "driver.py", str(rec), "train.py", what)


def test_calls_of_a_closure_are_made_as_recommended(workload, plain, tmp_path):
    training = replace(workload.training, optimizer="LBFGS", by_closure=True, clip_norm=None)
    ours = run_with(replace(workload, training=training), "compiled", "by closure", tmp_path)
    assert_same(ours, plain("by closure"), 1e-3)
    assert "closure recommended {'inductor': 12} {} ('compiles at the first closure call',)" in ours.stderr


def test_a_loss_that_the_script_scales_is_trained_as_recommended(workload, plain, tmp_path):
    ours = run_with(workload, "fused", "scaled", tmp_path)
    assert_same(ours, plain("scaled"), 1e-3)
    assert "training recommended {'eager': 6} {} ()" in ours.stderr


def test_attention_is_computed_as_recommended_in_both_passes_of_a_training_call(workload, plain, tmp_path):
    ours = run_with(workload, "attention", "telling", tmp_path)
    assert_same(ours, plain("telling"), 1e-3)
    told = re.findall(r"(forward|backward): (True|False)", ours.stderr)
    # Two layers forward, a backward pass, and two layers in the call without gradients, which is not changed.
    a_step = [("forward", "False")] * 2 + [("backward", "False")] + [("forward", "True")] * 2
    assert told == 6 * a_step


def test_an_autocast_around_forward_gives_way_to_the_plans_precision(workload, plain, tmp_path):
    ours = run_with(workload, "fused", "wrapped", tmp_path)
    assert "training recommended {'eager': 6} {} ()" in ours.stderr
    losses, at_full, wrapped = (numbers(one.stdout)[:12:2] for one in (ours, plain("plain"), plain("wrapped")))
    assert losses == pytest.approx(at_full, abs=2e-4)
    assert wrapped != pytest.approx(at_full, abs=2e-4)
    # Calls without gradients are not changed.
    assert numbers(ours.stdout)[1:12:2] == pytest.approx(numbers(plain("wrapped").stdout)[1:12:2], rel=0.05)


def test_what_was_saved_goes_on_with_and_without(served, plain):
    assert_same(served("saved"), plain("saved"), served.near)
    with_plan, without = served("resumed"), served("resumed", plain=True)
    assert_same(with_plan, without, served.near)


def test_the_recommendation_takes_the_place_of_a_model_compiled_in_place(workload, plain, tmp_path):
    ours = run_with(workload, "fused", "compiled in place", tmp_path)
    assert_same(ours, plain("compiled in place"), 1e-3)
    assert "compiled: None" in ours.stderr
    assert "training recommended {'eager': 6} {} ()" in ours.stderr


@pytest.mark.parametrize("settings", [{}, {"scope": ["into", "out"]}], ids=["whole", "in blocks"])
def test_where_compiling_fails_the_script_trains_on_without(workload, plain, tmp_path, settings):
    broken = Plan(runtime="inductor", settings={"backend": "broken", **settings})
    rec = recommended(workload, broken, tmp_path / "rec")
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "driver.py").write_text(BROKEN + DRIVER)
    ours = run(tmp_path, "driver.py", str(rec), "train.py", "plain")
    assert_same(ours, plain("plain"), 1e-3)
    assert "training recommended {'eager': 6}" in ours.stderr
    assert "compiling failed: " in ours.stderr


def test_a_script_without_the_model_is_as_it_was(served):
    ours = served("other")
    assert (ours.stdout, ours.stderr) == ("torch.Size([12, 3])\n", "")


@pytest.mark.parametrize("plan", [Plan(micro_batches=2), Plan(runtime="inductor", settings={"with_loss": True})])
def test_a_plan_for_another_loop_is_refused(workload, tmp_path, plan):
    with pytest.raises(InvalidRecommendation, match="not possible in the script's own loop"):
        TrainedScript(recommended(replace(workload, name="other"), plan, tmp_path / "rec"))
