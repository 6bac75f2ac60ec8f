"""A training step with less memory: what needs memory, what saves it, and that the step learns the same."""

import copy
import pickle

import pytest
import torch
from laboratory import EAGER
from learners import LEARNERS, adamw, fitted, learner
from msgspec.structs import replace
from torch import nn

import autocompile
from autocompile.core.job import Acceptance, Limits
from autocompile.core.outcome import Failure, Measurement
from autocompile.core.plan import Plan
from autocompile.core.tolerance import published_tolerance
from autocompile.report.limits import verdict_words
from autocompile.runtime import building
from autocompile.runtime.building import as_trained
from autocompile.runtime.inductor.settings import compiled
from autocompile.runtime.recomputation import recompute
from autocompile.trial.check.compare import compare
from autocompile.trial.check.cut_proof import cut_problems
from autocompile.trial.check.reference import make_reference
from autocompile.trial.measure import measure
from autocompile.trial.phases import Phases
from autocompile.trial.profile.blocks import repeated_blocks
from autocompile.trial.profile.savings import recompute_problem
from autocompile.trial.step_memory import step_peak_bytes
from autocompile.workload.samples import Sample
from autocompile.workload.training.cutting import parts_of, uncut
from autocompile.workload.training.step import TrainingStep
from autocompile.workload.training.training import Training

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),
]

BLOCKS = ("blocks.0", "blocks.1")
RECOMPUTED, CUT = Plan(recomputed=BLOCKS), Plan(micro_batches=2)


class Block(nn.Module):
    def __init__(self, width=32, *, dropout=0.0, normalized=False):
        super().__init__()
        norm = nn.BatchNorm1d(4 * width) if normalized else nn.Identity()
        self.layers = nn.Sequential(
            nn.Linear(width, 4 * width), norm, nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        return x + self.layers(x)


def deep(blocks=6, **options):
    """Whose activations take most of what a step takes, if the batch is large."""
    return nn.Sequential(*(Block(**options) for _ in range(blocks)), nn.Linear(32, 1))


def step_of(model, loss=fitted, *, batch=512, optimizer=adamw, **options):
    torch.manual_seed(0)
    sample = Sample((((torch.randn(batch, 32), torch.randn(batch, 1))),), {})
    return TrainingStep(model.train(), Training(loss=loss, optimizer=optimizer), **options), sample


def peak(step, sample, plan=None):
    return step_peak_bytes(as_trained(step, plan) if plan else step, [sample])


def all_blocks(model):
    return tuple(path for block in repeated_blocks(model) for path in block.paths)


def test_the_peak_is_the_steps_own_and_not_the_process():
    step, sample = step_of(deep())
    ballast = torch.zeros(1 << 25)
    parameters = sum(p.numel() * 4 for p in step.module.parameters())
    activations = 6 * 512 * (4 * 32) * 4
    own = peak(step, sample)
    assert 4 * parameters + activations < own < 4 * parameters + 10 * activations  # gradients, two moments
    assert own == peak(step, sample)
    assert own < ballast.nbytes
    assert all(p.grad is None for p in step.module.parameters())
    frugal, _ = step_of(deep(), optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    assert own - peak(frugal, sample) == pytest.approx(2 * parameters, rel=0.01)


def test_blocks_that_are_computed_again_and_parts_of_batches_take_less():
    step, sample = step_of(deep())
    given = peak(step, sample)
    recomputed = Plan(recomputed=all_blocks(step.module))
    assert peak(step, sample, recomputed) < 0.6 * given
    assert peak(step, sample, CUT) < 0.75 * given
    assert peak(step, sample, Plan(micro_batches=4)) < peak(step, sample, CUT)
    assert peak(step, sample, replace(recomputed, micro_batches=4)) < peak(step, sample, recomputed)


def test_the_compilers_budget_takes_less_and_is_that_models_alone():
    import torch._functorch.config as functorch

    step, sample = step_of(deep())
    taken, gradients = [], []
    for plan in (compiled(), compiled(memory_budget=0.5), compiled(memory_budget=0.5, scope=all_blocks(step.module))):
        torch.compiler.reset()  # else the second model is taken for the first
        own = as_trained(step, plan)
        taken.append(step_peak_bytes(own, [sample]))
        own.clear()
        own.learn(sample.args[0], 1)
        gradients.append([parameter.grad for parameter in own.parameters.values()])
    assert max(taken[1:]) < 0.9 * taken[0]
    for other in gradients[1:]:
        torch.testing.assert_close(other, gradients[0], rtol=1e-4, atol=1e-6)
    assert functorch.activation_memory_budget == 1.0


def test_what_is_computed_again_draws_the_same_and_leaves_the_names():
    step, sample = learner("transformer")
    own = as_trained(step, RECOMPUTED)
    assert list(own.module.state_dict()) == list(step.module.state_dict())
    for one in (step, own):
        torch.manual_seed(3)
        one.clear()
        one.learn(sample.args[0], 1)
    for name, parameter in step.parameters.items():
        assert torch.equal(parameter.grad, own.parameters[name].grad), name


def test_a_copy_of_what_computes_again_runs_its_own_parts():
    torch.manual_seed(0)
    model = LEARNERS["transformer"].model().eval()
    recompute(model, BLOCKS)
    recompute(model, BLOCKS)
    inputs = LEARNERS["transformer"].batch()[0]
    expected = model(inputs)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert not any(isinstance(part.forward.forward, type(part.forward)) for part in other.blocks)
        assert torch.equal(other(inputs), expected)
        with torch.no_grad():
            other.blocks[0].linear1.weight.add_(1.0)
        assert not torch.equal(other(inputs), expected)
    assert torch.equal(model(inputs), expected)


def test_a_block_with_batch_statistics_is_not_computed_again():
    step, sample = step_of(deep(normalized=True))
    before = copy.deepcopy(step.module.state_dict())
    problem = recompute_problem(step, sample, repeated_blocks(step.module))
    assert problem == "0.layers.1.running_mean changes at every step, and would be changed twice"
    assert all(torch.equal(value, before[name]) for name, value in step.module.state_dict().items())
    assert recompute_problem(*step_of(deep(dropout=0.1)), repeated_blocks(step.module)) == ""


def test_a_batch_is_cut_where_it_can_be():
    batch = {"x": torch.arange(12).reshape(6, 2), "y": (torch.arange(6), 7, torch.tensor(3.0))}
    first, second = parts_of(batch, 2)
    assert torch.equal(torch.cat([first["x"], second["x"]]), batch["x"])
    assert first["x"].data_ptr() == batch["x"].data_ptr()
    assert first["y"][1:] == second["y"][1:] == (7, torch.tensor(3.0))
    assert len(first["y"][0]) == 3
    assert parts_of(batch, 4) == [batch]
    assert uncut(batch, 4) == "a batch of 6 has no 4 equal parts"
    assert uncut((torch.ones(4), torch.ones(6)), 2) == "the first axes of a batch differ in size: 4, 6"
    assert uncut((torch.tensor(1.0), "a word"), 2) == "no tensor of a batch has an axis"
    assert uncut(torch.ones(0, 2), 2) == "a batch of 0 has no 2 equal parts"


def summed(model, batch):
    return (model(batch[0]) - batch[1]).square().sum()


def contrasted(model, batch):
    """Each sample is told apart from all others of the batch."""
    inputs = model(batch[0])
    return nn.functional.cross_entropy(inputs @ inputs.T, torch.arange(len(inputs)))


def noisy(model, batch):
    inputs = batch[0] + 0.1 * torch.randn_like(batch[0])
    return fitted(model, (inputs, batch[1]))


@pytest.mark.parametrize("name", ["transformer", "lstm", "mlp"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_independent_samples_are_proved_with_dropout(name, accumulate):
    step, sample = learner(name, accumulate=accumulate, clip_norm=1.0)
    before = torch.get_rng_state(), copy.deepcopy(step.module.state_dict())
    assert cut_problems(step, [sample]) == {"2": "", "4": ""}
    assert torch.equal(torch.get_rng_state(), before[0])
    assert all(torch.equal(value, before[1][key]) for key, value in step.module.state_dict().items())


def test_what_random_numbers_do_to_a_sample_is_no_influence_of_others():
    step, sample = step_of(deep(), noisy)
    assert cut_problems(step, [sample]) == {"2": "", "4": ""}


@pytest.mark.parametrize(
    ("model", "loss"),
    [(deep(normalized=True), fitted), (deep(), summed), (deep(), contrasted)],
    ids=["batch statistics", "a sum", "contrasts"],
)
def test_what_learns_otherwise_from_parts_is_found_out(model, loss):
    step, sample = step_of(model, loss, batch=8)
    for problem in cut_problems(step, [sample]).values():
        assert "is not the mean of its parts'" in problem
        assert "\n" not in problem


def test_samples_that_are_all_alike_hide_nothing():
    step, sample = step_of(deep(normalized=True), batch=8)
    alike = Sample(((torch.ones(8, 32), torch.ones(8, 1)),), {})
    assert all(cut_problems(step, [alike]).values())
    assert cut_problems(step, [sample, Sample(((torch.ones(7, 32), torch.ones(7, 1)),), {})]) == {
        "2": "a batch of 7 has no 2 equal parts",
        "4": "a batch of 7 has no 4 equal parts",
    }


TRACED = compiled(backend="aot_eager")
IN_LESS = [
    ("transformer", 0.1, RECOMPUTED),
    ("transformer", 0.1, replace(TRACED, recomputed=BLOCKS)),
    ("transformer", 0.1, replace(compiled(backend="aot_eager", scope=BLOCKS), recomputed=BLOCKS)),
    ("transformer", 0.0, replace(RECOMPUTED, micro_batches=4, optimizer="fused")),
    ("transformer", 0.0, replace(TRACED, recomputed=BLOCKS, micro_batches=2)),
    ("transformer", 0.0, replace(RECOMPUTED, micro_batches=2, autocast="bfloat16")),
    ("lstm", 0.0, CUT),
    ("mlp", 0.0, replace(TRACED, micro_batches=4)),
]


def without_dropout(step):
    for module in step.module.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        elif hasattr(module, "dropout") and isinstance(module.dropout, float):
            module.dropout = 0.0
    return step


@pytest.mark.parametrize(("name", "dropout", "plan"), IN_LESS)
def test_steps_in_less_memory_are_verified(name, dropout, plan):
    torch.compiler.reset()
    step, sample = learner(name, accumulate=2, clip_norm=1.0)
    step = step if dropout else without_dropout(step)
    reference = make_reference(step, (sample,), variants=1, seed=0)
    assert reference.precision == "float64"
    compared = compare(as_trained(step, plan), reference, Acceptance(published_tolerance(plan.precision)))
    assert compared.fault == ""


def test_batch_statistics_of_parts_are_refused():
    step, sample = learner("cnn")
    reference = make_reference(without_dropout(step), (sample,), variants=1, seed=0)
    assert compare(as_trained(step, CUT), reference, Acceptance(published_tolerance(""))).fault


def test_a_compiled_step_with_dropout_in_less_memory_is_measured(laboratory):
    torch.manual_seed(0)
    model, batch = deep(2, dropout=0.1), (torch.randn(64, 32), torch.randn(64, 1))
    profile = laboratory.prepare(model.train(), [batch], training=Training(loss=fitted, optimizer=adamw))
    assert profile.micro_batches == {"2": "", "4": ""}
    assert profile.recompute_problem == ""
    assert profile.random
    plan = replace(compiled(), recomputed=all_blocks(model), micro_batches=2)
    outcome = laboratory.trial(plan, Limits(500.0))
    assert isinstance(outcome, Measurement), outcome
    assert outcome.peak_memory_bytes < profile.peak_memory_bytes
    assert outcome.counters.graphs > 0


class Summing(TrainingStep):
    """Forgets to divide by the number of parts."""

    def learn(self, batch, count):
        return sum(self._learn_part(part, count) for part in parts_of(batch, self.micro_batches))


class First(TrainingStep):
    """Forgets all parts but the first."""

    def learn(self, batch, count):
        parts = parts_of(batch, self.micro_batches)
        return self._learn_part(parts[0], count * len(parts))


@pytest.mark.parametrize("wrong", [Summing, First])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_parts_that_are_added_up_wrong_are_refused(laboratory, monkeypatch, wrong, dropout):
    torch.manual_seed(0)
    batch = torch.randn(64, 32), torch.randn(64, 1)
    training = Training(loss=fitted, optimizer=adamw)
    laboratory.prepare(deep(dropout=dropout).train(), [batch], training=training)
    right = building.as_planned

    def as_planned(step, plan, compile_module, *, isolate):
        built = right(step, plan, compile_module, isolate=isolate)
        if plan != Plan():
            built.__class__ = wrong
        return built

    monkeypatch.setattr(building, "as_planned", as_planned)
    outcome = measure(laboratory.task(CUT), Phases())
    assert isinstance(outcome, Failure)
    assert (outcome.stage, outcome.kind) == ("verify", "wrong_result")


def test_a_limit_that_the_given_step_breaks_is_kept_by_another_way(tmp_path):
    torch.manual_seed(0)
    model, batch = deep(dropout=0.1).train(), (torch.randn(512, 32), torch.randn(512, 1))
    optimizer = adamw(model.parameters())
    step = TrainingStep(model, Training(loss=fitted, optimizer=optimizer))
    given = step_peak_bytes(step, [Sample((batch,), {})])
    limit = int(0.7 * given)
    strategy = tmp_path / "eager.toml"
    strategy.write_text(EAGER)
    rec = autocompile.optimize(
        model,
        [batch],
        "400s",
        strategy=str(strategy),
        output=tmp_path / "rec",
        training=autocompile.Training(loss=fitted, optimizer=optimizer),
        goal=autocompile.Goal(max_memory=limit),
        progress=False,
    )
    document = rec.document
    baseline = next(entry for entry in document.trials if entry.origin == "baseline")
    winner = next(entry for entry in document.trials if entry.number == document.winner.number)
    assert baseline.peak_memory_bytes == pytest.approx(given, rel=0.02)
    assert baseline.excess["max_memory"] > 0.3
    assert winner.excess["max_memory"] <= 0
    assert winner.peak_memory_bytes <= limit
    assert winner.plan.recomputed or winner.plan.micro_batches > 1
    assert verdict_words(baseline).startswith("baseline, beyond max_memory by ")
    own = autocompile.prepare(tmp_path / "rec", model, optimizer, loss=fitted)
    assert torch.isfinite(own(batch))
    assert step_peak_bytes(as_trained(step, winner.plan), [Sample((batch,), {})]) <= limit
