"""A training step as a unit of work: what it does and reports, and that it leaves no trace."""

import hashlib
import io

import cloudpickle
import pytest
import torch
from learners import LEARNERS, adamw, classified, fitted, learner
from torch import nn

from autocompile.core.job import Acceptance, Timing
from autocompile.core.plan import Plan
from autocompile.core.tolerance import published_tolerance
from autocompile.trial.check.compare import compare
from autocompile.trial.check.reference import Reference, make_reference
from autocompile.trial.check.repeatability import repeatability
from autocompile.trial.clock.timing import subject, time_pairs
from autocompile.workload.samples import Sample
from autocompile.workload.training.step import TrainingStep
from autocompile.workload.training.training import Training

pytestmark = pytest.mark.usefixtures("one_thread")

BRIEF = Timing(precision=0.5, limit_s=0.2)


def bits(model, optimizer):
    """A digest of all that a user has: the model with its gradients, the optimizer, random numbers; and who is who."""
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    held = io.BytesIO()
    torch.save((model.state_dict(), gradients, optimizer.state_dict(), optimizer.defaults), held)
    identities = [id(tensor) for tensor in (*model.parameters(), *model.buffers(), *gradients.values())]
    groups = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    modes = [module.training for module in model.modules()]
    random = torch.get_rng_state().numpy().tobytes()
    return hashlib.sha256(held.getvalue() + random).hexdigest(), identities, groups, modes


def by_hand(name, *, accumulate=1, clip_norm=None, steps=3):
    """What a user's own loop makes of the model: losses, and the parameters afterwards."""
    kind = LEARNERS[name]
    torch.manual_seed(0)
    model = kind.model().train()
    batches = [kind.batch() for _ in range(accumulate)]
    optimizer = adamw(list(model.parameters()))
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        total = 0.0
        for batch in batches:
            loss = kind.loss(model, batch) / accumulate
            loss.backward()
            total += loss.item()
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()
        losses.append(total)
    return losses, model.state_dict()


@pytest.mark.parametrize(("accumulate", "clip_norm"), [(1, None), (1, 0.1), (3, None), (2, 0.1)])
@pytest.mark.parametrize("name", LEARNERS)
def test_it_is_the_users_own_loop(name, accumulate, clip_norm):
    losses, trained = by_hand(name, accumulate=accumulate, clip_norm=clip_norm)
    step, sample = learner(name, accumulate=accumulate, clip_norm=clip_norm)
    own = [step.work(sample) for _ in range(3)]
    assert [loss.item() for loss in own] == pytest.approx(losses, rel=1e-6)
    assert not own[0].requires_grad
    for key, value in step.module.state_dict().items():
        assert torch.equal(value, trained[key]), key


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "never trained"])
@pytest.mark.parametrize("name", LEARNERS)
def test_nothing_of_the_users_is_changed(name, warm):
    kind = LEARNERS[name]
    torch.manual_seed(0)
    model, batch = kind.model().train(), kind.batch()
    optimizer = adamw(list(model.parameters()))
    if warm:
        kind.loss(model, batch).backward()
        optimizer.step()
    before = bits(model, optimizer)
    sample = Sample((batch, batch), {})
    step = TrainingStep(model, Training(loss=kind.loss, optimizer=optimizer, accumulate=2, clip_norm=0.1))
    step.check(sample)
    step.observe(sample, seed=1)
    assert bits(model, optimizer) == before
    random = torch.get_rng_state()
    for other, batches in (
        (step.twin(), sample),
        (step.in_float64(), Sample(tuple(map(widened, sample.args)), {})),
    ):
        own = flat(other.module).detach().clone()
        other.work(batches)
        assert not torch.equal(flat(other.module), own)
        other.observe(batches, seed=2)
    torch.set_rng_state(random)
    assert bits(model, optimizer) == before
    with pytest.raises(TypeError), step.preserved():
        step.work(Sample((batch, None), {}))
    assert bits(model, optimizer) == before, "put back also where the second batch fails"


def test_timing_in_pairs_leaves_both_as_they_were():
    step, sample = learner("cnn")
    step.work(sample)
    twin = step.twin()
    before = bits(step.module, step.optimizer), bits(twin.module, twin.optimizer)
    pairs = time_pairs(subject(step, [sample], "cpu", 1), subject(twin, [sample], "cpu", 1), BRIEF, seed=0)
    assert pairs.ratio.value > 0
    assert (bits(step.module, step.optimizer), bits(twin.module, twin.optimizer)) == before
    assert step.state.shared_with(twin.state) == {}


def flat(model):
    return torch.cat([parameter.flatten() for parameter in model.parameters()])


def widened(batch):
    return tuple(part.double() if part.is_floating_point() else part for part in batch)


def test_a_twin_goes_on_alike_and_apart():
    step, sample = learner("transformer")
    step.work(sample)
    twin = step.twin()
    assert twin.module.head.weight is twin.module.embedding.weight, "what is tied stays tied"
    random = torch.get_rng_state()
    losses = [step.work(sample).item() for _ in range(3)]
    torch.set_rng_state(random)
    assert [twin.work(sample).item() for _ in range(3)] == losses
    assert torch.equal(flat(twin.module), flat(step.module))
    twin.work(sample)
    assert not torch.equal(flat(twin.module), flat(step.module))


def test_in_float64_everything_is():
    step, sample = learner("cnn", plan=Plan(autocast="bfloat16"))
    step.work(sample)
    wide = step.in_float64()
    assert wide.autocast == ""
    assert step.autocast == "bfloat16"
    tensors = [tensor for _name, tensor in wide.state.named() if tensor.is_floating_point()]
    assert len(tensors) > 20
    assert {tensor.dtype for tensor in tensors} == {torch.float64}
    assert wide.work(Sample(tuple(map(widened, sample.args)), {})).dtype == torch.float64


def test_what_it_did_is_told_by_the_models_own_names():
    step, sample = learner("cnn", clip_norm=0.1)
    leaves = step.observe(sample, seed=0).leaves
    assert leaves["loss"].shape == (3,)
    assert leaves["norm of the gradient"].shape == (3,)
    assert leaves["gradient of 0.weight"].shape == (3, 8, 3, 3, 3)
    assert leaves["update of 0.weight"].abs().max() > 1e-3
    assert leaves["change of buffer 1.running_mean"].abs().max() > 0
    assert leaves["buffer 1.num_batches_tracked afterwards"] == 3
    assert leaves["optimizer's step of 0.weight"] == 3
    assert leaves["optimizer's exp_avg of 0.weight"].shape == (8, 3, 3, 3)
    again = step.observe(sample, seed=0).leaves
    assert all(torch.equal(leaf, again[name]) for name, leaf in leaves.items() if isinstance(leaf, torch.Tensor))
    assert not torch.equal(leaves["loss"], step.observe(sample, seed=1).leaves["loss"])
    repeats = repeatability(step, sample, seed=0)
    assert (repeats.deterministic, repeats.random, repeats.mutates_inputs) == (True, True, False)


def test_what_is_frozen_or_not_held_stays_and_is_judged():
    def half(parameters):
        return torch.optim.SGD(parameters[:2], lr=0.1)

    step, sample = learner("mlp", half)
    step.module[3].weight.requires_grad_(False)
    reference = make_reference(step, (sample,), variants=0, seed=0)
    leaves = reference.cases[0].baseline.leaves
    assert "gradient of 3.weight" not in leaves
    assert leaves["update of 3.weight"].abs().max() == 0
    assert leaves["update of 5.bias"].abs().max() == 0
    assert "gradient of 5.bias" in leaves
    assert compare(step.twin(), reference, Acceptance(published_tolerance(""))).fault == ""
    wrong = step.twin()
    wrong.optimizer.add_param_group({"params": [wrong.module[5].bias]})
    assert "update of 5.bias is off" in compare(wrong, reference, Acceptance(published_tolerance(""))).fault


def test_a_reference_travels(tmp_path):
    step, sample = learner("lstm")
    make_reference(step, (sample,), variants=0, seed=0).save(tmp_path / "reference", with_outputs=False)
    reference = Reference.load(tmp_path / "reference")
    assert compare(step.twin(), reference, Acceptance(published_tolerance(""))).fault == ""
    travelled = cloudpickle.loads(cloudpickle.dumps(step))
    assert compare(travelled, reference, Acceptance(published_tolerance(""))).fault == ""


def test_what_a_loss_brings_along_is_widened_for_float64():
    weights, kept = torch.linspace(0.5, 1.5, 10), torch.zeros(())

    def weighted(model, batch):
        kept.add_(1)
        return nn.functional.cross_entropy(model(batch[0]), batch[1], weight=weights) * kept.clamp(max=1)

    step, sample = learner("cnn")
    step = TrainingStep(step.module, Training(loss=weighted, optimizer=adamw))
    reference = make_reference(step, (sample,), variants=0, seed=0)
    assert reference.precision == "float64"
    assert (weights.dtype, kept.dtype, kept.item()) == (torch.float32, torch.float32, 6)
    assert compare(step.twin(), reference, Acceptance(published_tolerance(""))).fault == ""


def test_what_draws_other_numbers_in_float64_is_no_reference():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(10, 1)

        def forward(self, x):
            return self.linear(x * (torch.rand(x.shape, dtype=x.dtype) > 0.5))

    torch.manual_seed(0)
    step = TrainingStep(Own(), Training(loss=fitted, optimizer=adamw))
    reference = make_reference(step, (Sample(((torch.randn(8, 10), torch.randn(8, 1)),), {}),), variants=0, seed=0)
    assert reference.precision == "the baseline's own"
    assert "other random numbers" in reference.notes[0]
    assert compare(step.twin(), reference, Acceptance(published_tolerance(""))).fault == ""


def test_sparse_gradients_are_told_dense():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(32, 8, sparse=True), nn.Flatten(), nn.Linear(64, 32))
    sample = Sample(((torch.randint(32, (4, 8)), torch.randint(32, (4,))),), {})
    step = TrainingStep(model, Training(loss=classified, optimizer=lambda ps: torch.optim.SGD(ps, lr=0.1)))
    step.work(sample)
    before = bits(step.module, step.optimizer)
    reference = make_reference(step, (sample,), variants=0, seed=0)
    assert reference.precision == "float64"
    assert compare(step, reference, Acceptance(published_tolerance(""))).fault == ""
    assert bits(step.module, step.optimizer) == before
