"""Models that draw random numbers when called: compiled, and verified exactly or by distribution."""

import numpy as np
import pytest
import torch
from laboratory import EAGER
from msgspec.structs import replace
from servings import CARRIED
from torch import nn

import autocompile
from autocompile.core.job import Acceptance
from autocompile.core.outcome import Failure, Measurement
from autocompile.core.plan import Plan
from autocompile.core.tolerance import published_tolerance
from autocompile.runtime.building import built
from autocompile.runtime.inductor.runtime import InductorRuntime
from autocompile.runtime.inductor.settings import compiled, settings_of
from autocompile.trial import measurand
from autocompile.trial.check.batch_proof import prove_batch
from autocompile.trial.check.compare import compare
from autocompile.trial.check.randomness import lowering_fault
from autocompile.trial.check.reference import make_reference
from autocompile.trial.measure import measure
from autocompile.trial.phases import Phases
from autocompile.workload.call import Call
from autocompile.workload.samples import Sample

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),  # the compiler's own
    pytest.mark.usefixtures("one_thread"),
]
EXACT = published_tolerance("")
# More than these runs need even on a busy machine: they end when their strategy ends.
AMPLE = "400s"
COMPILED = EAGER.replace("max_trials = 3", "max_trials = 2").replace("'eager'", "'inductor'")


class Sampler(nn.Module):
    """Encodes, draws, decodes: what a variational autoencoder does."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(8, 32), nn.Linear(16, 8)

    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, -1)
        drawn = mean + torch.exp(log_variance / 2) * torch.randn_like(mean)
        return {"decoded": self.decoder(drawn), "kept": torch.rand(x.shape[0]) < 0.5}


class Dropping(nn.Module):
    """Dropout, right or wrong."""

    def __init__(self, rate, *, scaled=True, again=False, by_row=False):
        super().__init__()
        self.rate, self.scaled, self.again, self.by_row = rate, scaled, again, by_row

    def forward(self, x):
        if self.again:
            torch.manual_seed(0)
        shape = x[:, :1].shape if self.by_row else x.shape
        kept = (torch.rand(shape) >= self.rate).to(x.dtype)
        return x * kept / (1 - self.rate if self.scaled else 1)


def perceptron(dropout):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 64), nn.ReLU(), dropout, nn.Linear(64, 4)).train()


def convolutional():
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Dropout(0.2), nn.Conv2d(8, 4, 3), nn.Dropout2d(0.2)
    return nn.Sequential(*layers).train()


def sample(*shape):
    torch.manual_seed(1)
    return Sample((torch.randn(*shape),), {})


RIGHT = perceptron(nn.Dropout(0.2))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (Dropping(0.0), "the same every time"),
        (Dropping(0.2, again=True), "the same every time"),
        (Dropping(0.2, scaled=False), "another mean"),
        (Dropping(0.3), "has another variance"),
        (Dropping(0.1), "has another variance"),
        (Dropping(0.2, by_row=True), "has another variance"),
    ],
    ids=["off", "same mask", "not scaled", "more", "less", "rows as a whole"],
)
def test_dropout_that_is_another_is_found(wrong, words):
    step, given = Call(perceptron(wrong)), sample(64, 8)
    before = torch.get_rng_state()
    assert words in lowering_fault(step, Call(RIGHT), given, 0, EXACT)
    assert torch.equal(torch.get_rng_state(), before)


def test_dropout_at_the_same_rate_passes_whatever_numbers_it_draws():
    for seed in range(5):
        assert lowering_fault(Call(perceptron(Dropping(0.2))), Call(RIGHT), sample(64, 8), seed, EXACT) == ""


def test_what_is_zero_at_another_rate_is_found():
    def alike_in_mean_and_variance(x):
        return x * torch.where(torch.rand_like(x) < 0.5, 0.5, 1.5)

    dropout = Call(nn.Dropout(0.2).train())
    assert "zero at another rate" in lowering_fault(Call(alike_in_mean_and_variance), dropout, sample(64, 8), 0, EXACT)


def test_the_reference_draws_the_same_numbers_in_double_precision():
    reference = make_reference(Call(Sampler()), (sample(16, 8),), variants=1, seed=3, random=True)
    assert reference.precision == "float64"
    for case in reference.cases:
        expected, drawn = (seen.leaves["output['decoded']"] for seen in (case.expected, case.baseline))
        assert expected.dtype == torch.float64
        torch.testing.assert_close(drawn.double(), expected, rtol=1e-5, atol=1e-6)


def test_samples_that_draw_together_are_no_batch():
    assert "random numbers are drawn" in prove_batch(Call(RIGHT), sample(4, 8)).problem


@pytest.mark.parametrize(("model", "shape"), [(Sampler(), (16, 8)), (convolutional(), (2, 3, 12, 12))])
def test_what_draws_random_numbers_is_compiled_and_measured(laboratory, model, shape):
    profile = laboratory.prepare(model, sample(*shape).args)
    assert (profile.random, profile.reference, profile.free_batch) == (True, "float64", False)
    plans = [compiled()]
    if len(shape) == 4:
        plans = [Plan(memory_format="channels_last"), replace(compiled(), memory_format="channels_last")]
    for plan in plans:
        outcome = laboratory.trial(plan, cache=plan.key)
        assert isinstance(outcome, Measurement), (plan, outcome)
        assert outcome.accuracy.reference == "float64"


def test_in_a_reduced_precision_the_same_numbers_are_drawn():
    step = Call(Sampler())
    reference = make_reference(step, (sample(16, 8),), variants=1, seed=0, random=True)
    reduced = built(step, Plan(autocast="bfloat16"))
    assert compare(reduced, reference, Acceptance(published_tolerance("bfloat16"))).fault == ""


def test_what_is_carried_is_verified_as_it_draws(laboratory):
    laboratory.prepare(Sampler(), sample(16, 8).args)
    tried = laboratory.trial(compiled(), cache=laboratory.packs_in(CARRIED))
    assert isinstance(tried, Measurement), tried
    artifact = laboratory.pack(compiled(), CARRIED)
    assert not isinstance(artifact, Failure), artifact
    graphs = {path.parent for path in artifact.rglob("fxgraph/*/*/*") if path.is_file()}
    assert len(graphs) == 1, "what it was compared by is not carried"
    outcome = laboratory.trial(compiled(), cache="loaded", artifact=str(artifact))
    assert isinstance(outcome, Measurement), outcome


def test_a_compiler_that_lowers_dropout_wrongly_is_refused_before_it_is_timed(laboratory, monkeypatch):
    laboratory.prepare(RIGHT, sample(64, 8).args)

    right = InductorRuntime.build

    def build(self, step, plan, samples, /, *, isolate):
        if "fallback_random" not in settings_of(plan).options:
            step = Call(perceptron(Dropping(0.2, scaled=False)))
        return right(self, step, plan, samples, isolate=isolate)

    monkeypatch.setattr(InductorRuntime, "build", build)
    phases = Phases()
    outcome = measure(laboratory.task(compiled()), phases)
    assert isinstance(outcome, Failure), outcome
    assert (outcome.stage, outcome.kind) == ("verify", "wrong_result"), outcome
    assert "another mean" in outcome.message
    assert "timing" not in phases.seconds


def test_what_draws_nothing_is_built_once(laboratory, monkeypatch):
    profile = laboratory.prepare(RIGHT.eval(), sample(64, 8).args)
    RIGHT.train()
    assert not profile.random
    monkeypatch.setattr(measurand, "drawing_as_eager", None)
    assert isinstance(measure(laboratory.task(compiled()), Phases()), Measurement)


def test_what_draws_by_other_means_is_told_apart(laboratory):
    generator = np.random.default_rng(0)

    def noisy(x):
        return x * generator.random()

    profile = laboratory.prepare(noisy, sample(4, 8).args)
    assert (profile.random, profile.unrepeatable) == (False, True)


@pytest.mark.parametrize("model", [RIGHT, Sampler()], ids=["dropout", "sampler"])
def test_a_model_that_draws_is_tuned_from_end_to_end(tmp_path, model):
    (tmp_path / "compiled.toml").write_text(COMPILED)
    inputs = sample(64, 8).args[0]
    strategy, output = str(tmp_path / "compiled.toml"), tmp_path / "rec"
    rec = autocompile.optimize(model, inputs, AMPLE, strategy=strategy, output=output, progress=False)
    plain = next(entry for entry in rec.trials if entry.label == "inductor")
    assert plain.status == "measured", plain
    assert plain.error < plain.error_limit
    assert any("draws other numbers than eager" in notice for notice in rec.document.notices)
    left_out = {decision.subject: decision.reason for decision in rec.decisions if decision.action == "narrowed"}
    for closed in ("runtime=aot", "runtime=openvino", "runtime=onnxruntime"):
        assert "draws random numbers" in left_out[closed]
    served = autocompile.load(output, model)
    one, other = (served(inputs) for _ in range(2))
    first, second = (made["decoded"] if isinstance(made, dict) else made for made in (one, other))
    assert first.shape == second.shape
    assert not torch.equal(first, second)
