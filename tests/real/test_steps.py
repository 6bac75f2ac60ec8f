"""Units of work: all their changes are undone, and their results are reported."""

import copy
from dataclasses import dataclass

import models
import pytest
import torch
from torch import nn

from autocompile.core.errors import InvalidWorkload
from autocompile.core.job import Acceptance, Timing
from autocompile.core.plan import Plan
from autocompile.core.tolerance import published_tolerance
from autocompile.runtime.building import build
from autocompile.trial.check.batch_proof import prove_batch
from autocompile.trial.check.compare import compare
from autocompile.trial.check.reference import make_reference
from autocompile.trial.check.repeatability import repeatability
from autocompile.trial.clock.timing import subject, time_pairs
from autocompile.trial.profile.counting import work_of
from autocompile.trial.profile.hotspots import hottest
from autocompile.trial.profile.kernels import kernels_of
from autocompile.workload.call import Call
from autocompile.workload.samples import Sample
from autocompile.workload.state import State
from autocompile.workload.step import Step

pytestmark = pytest.mark.usefixtures("one_thread")

BRIEF = Timing(precision=0.5, limit_s=0.2)
EXACT = Acceptance(published_tolerance(""))


@dataclass
class Report:
    """What a learning step gives: no tensor, and nothing that pytree knows."""

    loss: float
    words: str


class Learning(Step):
    """Learns from a batch: stands for a training step."""

    def __init__(self, module, optimizer, *, raises_after=None):
        self.module, self.optimizer, self.left = module, optimizer, raises_after

    @property
    def state(self):
        return State(self.module, learns=True, optimizers=(self.optimizer,))

    def work(self, sample):
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise RuntimeError("in the middle")
        return Report(self.optimizer.step(lambda: self.loss(sample)).item(), "learned")

    def loss(self, sample):
        self.optimizer.zero_grad()
        loss = self.module(*sample.args).square().mean()
        loss.backward()
        return loss

    def twin(self):
        module, optimizer = copy.deepcopy((self.module, self.optimizer))
        return type(self)(module, optimizer)

    def in_float64(self):
        twin = self.twin()
        twin.module.double()
        return twin


class Silent(Learning):
    """Gives nothing to compare but what it leaves behind."""

    def work(self, sample):
        return super().work(sample).words


OPTIMIZERS = {
    "SGD": lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9),
    "AdamW": lambda weights: torch.optim.AdamW(weights, lr=torch.tensor(0.1), foreach=False),
    "Adagrad": lambda weights: torch.optim.Adagrad(weights, lr=0.1),
}
BATCH = Sample((torch.linspace(-1, 1, 24).reshape(6, 4),), {})


def learning(optimizer="SGD", *, warm=True, of=Learning, dropout=0.5):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(dropout), nn.Linear(8, 2))
    step = of(module, OPTIMIZERS[optimizer](module.parameters()))
    if warm:
        for _ in range(2):
            step.work(BATCH)
    return step


def held(step):
    """All that a step may change: the identities of its tensors, and their bits."""
    tensors = dict(step.state.named())
    if isinstance(step, Learning):
        groups = [{k: v for k, v in group.items() if k != "params"} for group in step.optimizer.param_groups]
        settings = repr(groups)
        entries = [(id(p), sorted(entry)) for p, entry in step.optimizer.state.items()]
    else:
        settings, entries = "", []
    return {name: (id(tensor), tensor.detach().clone()) for name, tensor in tensors.items()}, settings, entries


def assert_as_before(step, before):
    tensors, settings, entries = held(step)
    assert (settings, entries) == before[1:]
    assert tensors.keys() == before[0].keys()
    for name, (identity, value) in tensors.items():
        assert identity == before[0][name][0], f"{name} is another tensor"
        assert torch.equal(value, before[0][name][1]), f"{name} has another value"


def timed(step):
    return subject(step, [BATCH], "cpu", torch.get_num_threads())


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "without gradients and optimizer state"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_timing_in_pairs_leaves_both_sides_as_they_were(optimizer, warm):
    baseline = learning(optimizer, warm=warm)
    candidate = baseline.twin()
    before, random = (held(baseline), held(candidate)), torch.get_rng_state()
    pairs = time_pairs(timed(baseline), timed(candidate), BRIEF, seed=0)
    assert pairs.ratio.value > 0
    assert_as_before(baseline, before[0])
    assert_as_before(candidate, before[1])
    assert torch.equal(torch.get_rng_state(), random)


def test_within_the_timing_nothing_is_put_back():
    baseline, losses = learning(), []
    candidate = baseline.twin()
    work = candidate.work
    candidate.work = lambda sample: losses.append(work(sample).loss)
    time_pairs(timed(baseline), timed(candidate), BRIEF, seed=0)
    assert len(set(losses)) > len(losses) / 2, "each run goes on from the last"


@pytest.mark.parametrize("runs", [0, 5, 200])
def test_both_sides_are_as_they_were_when_one_raises(runs):
    baseline = learning()
    candidate = baseline.twin()
    candidate.left = runs
    before = held(baseline), held(candidate)
    with pytest.raises(RuntimeError, match="in the middle"):
        time_pairs(timed(baseline), timed(candidate), Timing(precision=1e-9, limit_s=60.0), seed=0)
    assert_as_before(baseline, before[0])
    assert_as_before(candidate, before[1])


def test_an_optimizer_that_keeps_lists_of_tensors_goes_on_as_if_nothing_had_been():
    model = nn.Linear(4, 2)
    step = Learning(model, torch.optim.LBFGS(model.parameters(), max_iter=3, history_size=2))
    step.work(BATCH)
    with step.preserved():
        expected = [step.work(BATCH).loss for _ in range(4)]
    assert [step.work(BATCH).loss for _ in range(4)] == expected
    assert len(set(expected)) > 1


def test_what_one_side_changes_the_other_may_not_have():
    one = learning()
    other = Learning(one.module, OPTIMIZERS["SGD"](one.module.parameters()))
    with pytest.raises(InvalidWorkload, match=r"changes buffer 1\.running_mean, and a copy of the model shares it"):
        time_pairs(timed(one), timed(other), BRIEF, seed=0)
    reading = Call(nn.Linear(4, 2))
    other = Learning(reading.module, OPTIMIZERS["SGD"](reading.module.parameters()))
    with pytest.raises(InvalidWorkload, match="changes parameter weight"):
        time_pairs(timed(reading), timed(other), BRIEF, seed=0)


def test_a_call_shares_parameters_with_its_twin_and_no_buffer():
    model = models.BatchStatistics().train()
    for call in (Call(model), build(Call(model), Plan())):
        twin = call.twin()
        assert twin.module is not model
        assert type(twin) is type(call)
        assert all(a is b for a, b in zip(twin.module.parameters(), model.parameters(), strict=True))
        assert not any(a is b for a, b in zip(twin.module.buffers(), model.buffers(), strict=True))
        assert call.state.shared_with(twin.state) == {}
        twin(torch.randn(4, 4))
        assert torch.equal(model.norm.running_mean, torch.zeros(4))
    for stateless in (Call(torch.sin), Call(models.Stack())):
        assert stateless.twin() is stateless


def test_what_parameters_and_buffers_share_a_twin_shares_with_itself_alone():
    class Aliased(nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.other = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))
            self.register_buffer("v", self.w.data)

        def forward(self, x):
            self.v.add_(1)
            return x * self.w + self.other

    call = Call(Aliased())
    twin = call.twin()
    twin(torch.ones(4))
    assert torch.equal(twin.module.w, torch.full((4,), 2.0))
    assert torch.equal(call.module.w, torch.ones(4))
    assert twin.module.other is call.module.other


class Unique(nn.Module):
    """Its copy is itself, as a handle's to something outside of the process may be."""

    def __init__(self, *, counts):
        super().__init__()
        self.counts = counts
        self.register_buffer("count", torch.zeros(1))

    def __deepcopy__(self, memo):
        return self

    def forward(self, x):
        if self.counts:
            self.count.add_(1)
        return x + self.count


def test_what_a_copy_shares_may_be_timed_as_long_as_no_call_changes_it():
    reading = Call(nn.Sequential(Unique(counts=False)))
    time_pairs(timed(reading), timed(reading.twin()), BRIEF, seed=0)
    counting = Call(nn.Sequential(Unique(counts=True)))
    with pytest.raises(InvalidWorkload, match=r"a call changes buffer 0\.count, and a copy of the model shares it"):
        time_pairs(timed(counting), timed(counting.twin()), BRIEF, seed=0)
    assert counting.module[0].count.item() == 0


@pytest.mark.parametrize("model", [models.BatchStatistics().train(), models.Counting(), models.Averaging()])
def test_a_call_leaves_its_buffers(model):
    call, before = Call(model), held(Call(model))
    sample = Sample((torch.randn(6, 4),), {})
    found = call.observe(sample, seed=0)
    assert_as_before(call, before)
    name = next(iter(before[0]))
    assert not torch.equal(found.leaves[f"{name} after the call"], before[0][name][1]) or "var" in name
    with call.preserved():
        call.run(sample)
        assert any(not torch.equal(tensor, before[0][name][1]) for name, tensor in call.state.named())
    assert_as_before(call, before)
    first = call.snapshot()
    call.run(sample)
    second = call.snapshot()
    call.restore(first)
    assert_as_before(call, before)
    call.restore(second)
    assert any(not torch.equal(tensor, before[0][name][1]) for name, tensor in call.state.named())


def test_what_a_first_call_adds_stays():
    class Lazy(nn.Module):
        def forward(self, x):
            if not hasattr(self, "table"):
                self.register_buffer("table", x.cumsum(0))
            return self.table

    call = Call(Lazy())
    call.observe(Sample((torch.ones(3),), {}), seed=0)
    assert [name for name, _tensor in call.state.named()] == ["buffer table"]


def test_a_random_call_is_observed_from_one_state_and_leaves_it():
    call, sample = Call(nn.Dropout(0.5)), Sample((torch.ones(64),), {})
    before = torch.get_rng_state()
    first, again, other = (call.observe(sample, seed).leaves["output"] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)
    with call.preserved():
        once = call.run(sample)
    assert torch.equal(call.run(sample), once)


def test_a_call_that_writes_into_its_inputs_works_on_copies_if_it_should():
    given = torch.ones(4)
    sample = Sample((given,), {})
    call = Call(models.writes_into_its_input)
    found = call.observe(sample, seed=0)
    assert torch.equal(given, torch.ones(4))
    assert torch.equal(found.leaves["input[0][0] after the call"], torch.full((4,), 1.5))
    copying = call.on_copies()
    assert torch.equal(copying.run(sample), copying.run(sample))
    assert torch.equal(given, torch.ones(4))
    written = copying.observe(sample, seed=0).leaves["input[0][0] after the call"]
    assert torch.equal(written, torch.full((4,), 1.5)), "what it does to its inputs is seen all the same"
    assert not call.copies_inputs
    call.run(sample)
    assert torch.equal(given, torch.full((4,), 1.5))


def test_a_call_is_without_gradients_and_another_step_may_have_them():
    call = Call(nn.Linear(4, 2))
    assert not call.run(BATCH).requires_grad
    assert not call.observe(BATCH, seed=0).output.requires_grad
    step = learning()
    leaves = step.observe(BATCH, seed=0).leaves
    assert {"parameter 0.weight after the call", "gradient of 0.weight after the call"} <= leaves.keys()
    assert {"buffer 1.running_mean after the call", "optimizer's momentum_buffer of 0.weight after the call"} <= (
        leaves.keys()
    )


def test_an_output_that_is_no_tensor_is_told_and_compared():
    step = learning()
    before = held(step)
    found = step.observe(BATCH, seed=3)
    assert_as_before(step, before)
    assert found.leaves["output (type)"] == "Report"
    assert found.leaves["output.words"] == "learned"
    assert found.leaves["output.loss"] == step.observe(BATCH, seed=3).leaves["output.loss"]
    moved = found.leaves["parameter 0.weight after the call"]
    assert not torch.equal(moved, step.module[0].weight)


def test_what_is_asked_of_calls_may_be_asked_of_other_steps():
    step = learning(of=Silent)
    before = held(step)
    repeats = repeatability(step, BATCH, seed=0)
    assert (repeats.deterministic, repeats.random, repeats.mutates_inputs) == (True, True, False)
    assert prove_batch(step, BATCH).problem == "not every output has a batch axis"
    with step.preserved():
        work = work_of(step, BATCH)
        assert work.whole.flops > 0
        assert {"0", "1", "3"} <= {module.path for module in hottest(step, BATCH, "cpu", work.allocated)}
        assert kernels_of(step, BATCH, "cpu", 1).per_call > 0
    assert_as_before(step, before)


def test_a_learning_step_is_compared_with_its_float64_twin():
    step = learning(of=Silent, dropout=0.0)
    reference = make_reference(step, (BATCH,), variants=0, seed=0)
    assert reference.precision == "float64"
    assert compare(step, reference, EXACT).fault == ""
    wrong = step.twin()
    wrong.optimizer.param_groups[0]["lr"] = 0.11
    assert "parameter 0.weight" in compare(wrong, reference, EXACT).fault
