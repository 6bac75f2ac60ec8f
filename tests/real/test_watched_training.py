"""Typical training scripts: what watching records of a step is enough to repeat it in any process."""

import pytest
import torch
from laboratory import reply_to

from autocompile.core.job import CaptureTask, Limits, Watching
from autocompile.core.outcome import Failure
from autocompile.core.workload import Workload
from autocompile.workload.spool import unspool_step
from autocompile.workload.watching.choice import Subject, by_worth
from autocompile.workload.watching.learning import recorder
from autocompile.workload.watching.learning.lesson import Lesson
from autocompile.workload.watching.learning.lessons import Lessons
from autocompile.workload.watching.tally import Tally

HEAD = """\
import copy
import torch
import torch.nn.functional as F
from torch import nn

class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.into, self.out = nn.Linear(4, width), nn.Linear(width, 3)
        self.drop = nn.Dropout(0.25)

    def forward(self, x, hidden=None):
        hidden = self.drop(self.into(x).relu()) + (0 if hidden is None else hidden)
        return self.out(hidden), hidden

class Critic(nn.Sequential):
    pass

torch.manual_seed(0)
net, critic = Net(), Critic(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
criterion = nn.CrossEntropyLoss()

def penalized(x):
    x.requires_grad_()
    slope, = torch.autograd.grad(net(x)[0].sum(), x, create_graph=True)
    return (slope.norm(dim=1) - 1).square().mean()

def gathered(output):
    kept = torch.zeros(2, 3)
    kept[0] = output.mean(0)
    return kept.square().sum()

def batch(rows=6):
    return torch.randn(rows, 4), torch.randint(3, (rows,))

def closure(lbfgs, x, y):
    def call():
        lbfgs.zero_grad()
        loss = criterion(net(x)[0], y)
        loss.backward()
        return loss
    return call
"""
STEP = """
def step(x, y):
    optimizer.zero_grad()
    loss = {loss}
    loss.backward()
    optimizer.step()

for _ in range(5):
    step(*batch())
"""
# How typical scripts compute a loss from the model's output.
LOSSES = {
    "a criterion": "criterion(net(x)[0], y)",
    "a function": "F.cross_entropy(net(x)[0], y, label_smoothing=0.1)",
    "arithmetic": "((net(x)[0] - F.one_hot(y, 3)) ** 2).mean(0).sum() * 0.5 - 1 / (1 + net(x)[1].abs().mean())",
    "parts of the output": "criterion(net(x)[0][1:], y[:-1]) + net(x)[1].T.square().mean()",
    "called in turn": "criterion(net(x, net(x)[1])[0], y)",
    "carried on": "criterion(net(x, torch.ones(8) * net(x)[1].detach().mean())[0], y)",
    "decay by hand": "criterion(net(x)[0], y) + 1e-2 * sum(p.square().sum() for p in net.parameters())",
    "another model": "F.softplus(-critic(net(x)[0])).mean()",
    "a teacher": "F.mse_loss(net(x)[0], copy.deepcopy(net).eval()(x)[0].detach())",
    "gathered in place": "gathered(net(x)[0])",
    "a penalty": "torch.autograd.grad(net(x)[0].square().sum(), net.into.weight, create_graph=True)[0].norm()",
    "a penalty on the input": "penalized(x)",
    "summed up": "(lambda total: total.__iadd__(criterion(net(x)[0], y)))(torch.zeros(()))",
    "noise": "criterion(net(x)[0] + 0.1 * torch.randn(6, 3), y)",
}
REFUSED = {
    "one step": ("step(*batch())", "one step of it was seen"),
    "several modules": (
        """
both = torch.optim.SGD([*net.parameters(), *critic.parameters()], lr=0.1)
for _ in range(3):
    both.zero_grad()
    critic(net(batch()[0])[0]).mean().backward()
    both.step()""",
        "holds 4 parameters that the model does not have",
    ),
    "towers": (
        """
for _ in range(3):
    optimizer.zero_grad()
    (net(batch()[0])[0].sum() * critic(torch.ones(1, 3)).sum()).backward()
    optimizer.step()""",
        "one loss comes from calls of Net and Critic",
    ),
    "a function of its own": (
        """
class Half(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x / 2
    @staticmethod
    def backward(ctx, g): return g / 2
for _ in range(3):
    optimizer.zero_grad()
    Half.apply(net(batch()[0])[0]).sum().backward()
    optimizer.step()""",
        "goes through code that cannot be recorded",
    ),
    "a wrapper of its own": (
        """
import functools
net.forward = functools.wraps(net.forward)(lambda x, inner=net.forward: inner(2 * x))
for _ in range(3): step(*batch())""",
        "has replaced its forward() by a function that cannot be recorded",
    ),
    "one call of a closure": (
        """
lbfgs = torch.optim.LBFGS(net.parameters(), max_iter=1)
lbfgs.step(closure(lbfgs, *batch()))""",
        "one closure call of it was seen",
    ),
    "a closure that changes gradients by hand": (
        """
lbfgs = torch.optim.LBFGS(net.parameters(), max_iter=4)
calls = closure(lbfgs, *batch())
def changed():
    loss = calls()
    for p in net.parameters(): p.grad.sign_()
    return loss
lbfgs.step(changed)""",
        "its closure gives different gradients when it is called again",
    ),
    "several losses scaled at once": (
        """
scaler = torch.amp.GradScaler("cpu")
for _ in range(3):
    optimizer.zero_grad()
    torch.autograd.backward(scaler.scale([net(batch()[0])[0].sum(), net(batch()[0])[0].square().sum()]))
    scaler.step(optimizer)
    scaler.update()""",
        "it scales several losses at once with a GradScaler",
    ),
    "several losses of one call": (
        """
for _ in range(3):
    optimizer.zero_grad()
    made, hidden = net(batch()[0])
    made.square().mean().backward(retain_graph=True)
    hidden.square().mean().backward()
    optimizer.step()""",
        "several losses come from one call of the model; add them up",
    ),
    "a part is clipped": (
        """
for _ in range(3):
    optimizer.zero_grad()
    net(batch()[0])[0].square().mean().backward()
    nn.utils.clip_grad_norm_(net.out.parameters(), 1.0)
    optimizer.step()""",
        "it clips the gradients of only some parameters",
    ),
    "what torch does not look into": (
        """
class Batch:
    def __init__(self): self.x = batch()[0]
class Reader(Net):
    def forward(self, batch): return super().forward(batch.x)
net = Reader()
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(3):
    optimizer.zero_grad()
    net(Batch())[0].square().mean().backward()
    optimizer.step()""",
        "it is called with a Batch, whose tensors torch does not find",
    ),
    "gradients changed by hand": (
        """
for _ in range(3):
    optimizer.zero_grad()
    net(batch()[0])[0].sum().backward()
    for p in net.parameters(): p.grad.sign_()
    optimizer.step()""",
        "the script does something with gradients or parameters that was not recorded",
    ),
    "gradients never cleared": (
        """
for _ in range(3):
    criterion(net(batch()[0])[0], batch()[1]).backward()
    optimizer.step()""",
        "the script does something with gradients or parameters that was not recorded",
    ),
}


# How typical scripts scale gradients. The scaler skips a batch that is not finite.
SCALED = """
scaler = torch.amp.GradScaler("cpu"{options})
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, fused={fused})
for number in range(7):
    for _ in range(2):
        x, y = batch()
        x[0] = float("nan") if number in {left_out} else x[0]
        with torch.autocast("cpu", torch.{dtype}, enabled={casts}):
            loss = criterion(net(x)[0], y) / 2
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""
PLAIN = {"options": "", "fused": False, "left_out": (), "dtype": "float16", "casts": False}
SCALERS = {
    "disabled": {"options": ", enabled=False"},
    "left out": {"left_out": (0, 2)},
    "fused": {"fused": True, "left_out": (0, 2)},
    "in float16": {"casts": True},
}
# What scripts put around a model's forward().
WRAPPED = {
    "by itself": "net.forward = torch.autocast('cpu', torch.bfloat16)(net.forward)",
    "by accelerate": """
from accelerate import Accelerator
net, optimizer = Accelerator(mixed_precision="bf16", cpu=True).prepare(net, optimizer)
""",
}


@pytest.fixture
def watch(runner, tmp_path):
    """Watch a script of this text."""

    def watched(text, *arguments, **watching):
        script = tmp_path / "script.py"
        script.write_text(HEAD + text + "\n")
        directory = tmp_path / "workload"
        task = CaptureTask(str(script), str(directory), arguments=arguments, watching=Watching(**watching))
        return reply_to(runner, task, Limits(120.0), cache="capture")

    return watched


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
def test_a_step_is_done_again_from_what_was_seen(watch, loss):
    """The capture itself does the script's step again and compares; here it is done in yet another process."""
    workload = watch(STEP.format(loss=loss))
    assert isinstance(workload, Workload), workload
    assert (workload.kind, workload.script.calls, workload.training.optimizer) == ("training", 5, "AdamW")
    step, samples = unspool_step(workload)
    before = {name: one.detach().clone() for name, one in step.parameters.items()}
    step.check(samples[0])
    step.work(samples[0])
    assert any(not torch.equal(one, before[name]) for name, one in step.parameters.items())


@pytest.mark.parametrize(("text", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_done_again_is_told_in_a_line(watch, text, said):
    reply = watch(STEP.format(loss="criterion(net(x)[0], y)").replace("for _ in range(5):\n    step(*batch())", text))
    assert isinstance(reply, Failure), reply
    assert said in reply.message
    assert "\n" not in reply.message


def test_accumulated_and_clipped_gradients_and_a_schedule(watch):
    text = """
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, step / 10))
for number in range(12):
    (criterion(net(batch()[0])[0], batch()[1]) / 3).backward()
    if number % 3 == 2:
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
"""
    workload = watch(text)
    assert isinstance(workload, Workload), workload
    assert (workload.training.accumulate, workload.training.clip_norm, workload.script.calls) == (3, 0.5, 4)


def test_a_step_whose_closure_computes_the_loss_counts_calls_once(watch):
    text = """
def closure(x, y):
    loss = criterion(net(x)[0], y)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    return loss
for number in range(6):
    x, y = batch()
    optimizer.step(lambda: closure(x, y)) if number % 2 else optimizer.step(closure=lambda: closure(x, y))
"""
    workload = watch(text)
    assert isinstance(workload, Workload), workload
    assert (workload.training.accumulate, workload.training.clip_norm, workload.script.calls) == (1, 0.5, 6)


@pytest.mark.parametrize("search", ["None", "'strong_wolfe'"])
def test_calls_of_a_closure_are_done_again(watch, search):
    text = f"""
lbfgs = torch.optim.LBFGS(net.parameters(), max_iter=4, line_search_fn={search})
calls = closure(lbfgs, *batch())
for _ in range(2): lbfgs.step(calls)
raise SystemExit(lbfgs.state[next(net.parameters())]["func_evals"] < 8)
"""
    workload = watch(text)
    assert isinstance(workload, Workload), workload
    assert (workload.kind, workload.training.optimizer, workload.training.by_closure) == ("closure", "LBFGS", True)
    assert workload.script.calls >= 8
    assert f"was trained in {workload.script.calls} closure calls" in workload.notes[0]
    step, samples = unspool_step(workload)
    before = {name: one.detach().clone() for name, one in step.parameters.items()}
    step.work(samples[0])
    assert all(torch.equal(one, before[name]) for name, one in step.parameters.items())
    assert all(one.grad is not None for one in step.parameters.values())


@pytest.mark.parametrize("changed", SCALERS.values(), ids=SCALERS)
def test_scaled_losses_are_recorded_without_their_scale(watch, changed):
    workload = watch(SCALED.format(**(PLAIN | changed)))
    assert isinstance(workload, Workload), workload
    done = 7 - len(changed.get("left_out", ()))
    assert (workload.training.accumulate, workload.training.clip_norm, workload.script.calls) == (2, 0.5, done)
    assert any("GradScaler" in note for note in workload.notes) == ("options" not in changed)
    step, samples = unspool_step(workload)
    assert 0 < float(step.work(samples[0])) < 10


@pytest.mark.parametrize("wrapping", WRAPPED.values(), ids=WRAPPED)
def test_a_forward_wrapped_in_autocast_is_told_and_tuned_as_it_is_without(watch, wrapping):
    workload = watch(wrapping + STEP.format(loss="F.cross_entropy(net(x)[0].float(), y)"))
    assert isinstance(workload, Workload), workload
    assert workload.script.autocast == "bfloat16"
    assert any("has wrapped its forward() in autocast (bfloat16)" in note for note in workload.notes)
    step, samples = unspool_step(workload)
    assert not {"forward", "_original_forward"} & vars(step.module).keys()
    made = []
    step.module.register_forward_hook(lambda _module, _args, output: made.append(output[0].dtype))
    step.work(samples[0])
    assert made == [torch.float32]


def test_of_two_models_that_train_the_one_that_is_named_is_taken(watch):
    text = """
for_critic = torch.optim.SGD(critic.parameters(), lr=0.1)
for _ in range(4):
    made = net(batch()[0])[0]
    for_critic.zero_grad()
    (critic(torch.randn(6, 3)).mean() - critic(made.detach()).mean()).backward()
    for_critic.step()
    optimizer.zero_grad()
    critic(made).mean().backward()
    optimizer.step()
"""
    net, critic = watch(text, module="Net"), watch(text, module="critic")
    assert [one.script.module for one in (net, critic)] == ["Net", "Critic"]
    assert [one.training.optimizer for one in (net, critic)] == ["AdamW", "SGD"]


def test_batches_of_many_sizes_are_kept_with_what_is_done_to_each(watch):
    workload = watch(
        STEP.format(loss="criterion(net(x)[0].reshape(x.shape[0], 3), y)").replace("batch()", "batch(3 + _)")
    )
    assert isinstance(workload, Workload), workload
    assert [one.tensors[0].shape[0] for one in workload.signatures] == [4, 5, 6, 7]
    step, samples = unspool_step(workload)
    for sample in samples:
        step.check(sample)


def test_what_a_script_compiles_or_casts_is_told_and_tuned_as_it_is_without(watch):
    cast = "F.cross_entropy(net(x)[0], y)"
    text = STEP.format(loss=cast).replace(
        "    loss =", "    with torch.autocast('cpu', torch.bfloat16):\n        loss ="
    )
    workload = watch(text)
    assert isinstance(workload, Workload), workload
    assert workload.script.autocast == "bfloat16"
    assert any("remove the autocast" in note for note in workload.notes)
    compiled = watch("net = torch.compile(net, backend='eager')" + STEP.format(loss=cast))
    assert isinstance(compiled, Workload), compiled
    assert compiled.script.is_compiled


def test_evaluation_within_training_is_no_part_of_the_step(watch):
    text = (
        STEP.format(loss="criterion(net(x)[0], y)")
        + "    net.eval()\n    with torch.no_grad(): net(batch(32)[0])\n    net.train()"
    )
    workload = watch(text)
    assert isinstance(workload, Workload), workload
    assert workload.in_training_mode
    assert [one.tensors[0].shape for one in workload.signatures] == [(6, 4)]


@pytest.mark.parametrize(
    ("training_s", "named", "first"), [(3.0, False, "training"), (0.5, False, "calls"), (3.0, True, "calls")]
)
def test_a_training_comes_before_an_evaluation_that_took_more(training_s, named, first):
    net = torch.nn.Linear(2, 2)
    training = Subject(Tally(net, seconds=training_s / 2), Lesson(net, seconds=training_s / 2))
    calls = Subject(Tally(net, seconds=10.0))
    assert by_worth([calls, training], named=named)[0] is {"training": training, "calls": calls}[first]


def test_an_evaluation_is_tuned_where_the_training_cannot_be(watch):
    text = REFUSED["gradients changed by hand"][0] + "\nnet.eval()\nwith torch.no_grad(): net(batch(32)[0])"
    reply = watch(text, module="net")
    assert isinstance(reply, Workload), reply
    assert reply.kind == "inference"


def test_the_same_steps_are_the_same_workload(watch):
    text = STEP.format(loss="criterion(net(x)[0], y)")
    assert watch(text).fingerprint == watch(text).fingerprint


def test_little_is_held_of_what_leads_nowhere(watch):
    """Losses that are never derived from, with inputs of 200 MB, as in an evaluation with gradients enabled."""
    text = """
import resource
for _ in range(25):
    net(torch.ones(500_000, 4))[0].mean().item(), torch.ones(50_000_000) * net.out.bias[0]
print("held")
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
assert peak < 3000, peak
"""
    reply = watch(STEP.format(loss="criterion(net(x)[0], y)") + text)
    assert isinstance(reply, Workload), reply
    assert reply.kind == "inference" or reply.script.calls == 5


def test_what_is_being_noted_is_not_released(monkeypatch):
    """Without room for copies, the recorder releases unneeded ones before each operation that it sees."""
    monkeypatch.setattr(recorder, "_LITTLE_BYTES", 0)
    net, lessons = torch.nn.Linear(4, 2), Lessons()
    with lessons.open():
        optimizer, scaler = torch.optim.SGD(net.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
        for _ in range(4):
            optimizer.zero_grad()
            made = lessons.called(net, (torch.randn(8, 4),), {}, lambda module, x: module(x))
            scaler.scale((made - torch.randn(8, 2)).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
    lesson = lessons.of[id(net)]
    assert lesson.problem == ""
    assert lesson.start is not None
    assert len(lesson.recorded) == 4
