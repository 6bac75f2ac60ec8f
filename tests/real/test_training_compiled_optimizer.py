"""The compiled optimizer step: in trials, prepared, with a scheduler, and in the snippet."""

import json
import re
import warnings

import pytest
import torch
from learners import LEARNERS, adamw, learner
from msgspec.structs import replace

import autocompile
from autocompile.artifact.integrity import write_manifest
from autocompile.artifact.mismatch import requirements
from autocompile.core.job import Acceptance, Limits
from autocompile.core.manifest import MANIFEST_VERSION, Manifest
from autocompile.core.outcome import Measurement
from autocompile.core.tolerance import published_tolerance
from autocompile.runtime.building import as_trained
from autocompile.runtime.catalogue import kind_of
from autocompile.runtime.inductor.counters import counters
from autocompile.runtime.inductor.runtime import InductorRuntime
from autocompile.runtime.inductor.settings import compiled
from autocompile.runtime.snippet import snippet
from autocompile.trial.check.compare import compare
from autocompile.trial.check.reference import make_reference
from autocompile.workload.identity.facts import identity_of
from autocompile.workload.training.compiled_step import CompiledStep
from autocompile.workload.training.entry import entry_of
from autocompile.workload.training.training import Training

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),
]
PLAN = replace(compiled(only_updates=True), optimizer="compiled")
# Compiles as torch does, but generates no machine code, which would take seconds.
TRACED = "aot_eager"


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.compiler.reset()


@pytest.fixture
def traced(monkeypatch):
    """Programs are traced, and run operator by operator."""

    def compiled_update(_self, update):
        return torch.compile(update, fullgraph=True, dynamic=False, backend=TRACED)

    monkeypatch.setattr(InductorRuntime, "compiled_update", compiled_update)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4)


@pytest.mark.parametrize("optimizer", [adamw, sgd])
def test_what_it_makes_of_gradients_is_what_the_optimizer_makes(traced, optimizer):
    given, sample = learner("mlp", optimizer)
    reference = make_reference(given, (sample,), variants=1, seed=3)
    step, before = as_trained(given, PLAN), counters().graphs
    assert compare(step, reference, Acceptance(published_tolerance(""))).fault == ""
    assert counters().graphs == before + 1, "although its state was put back before each case"


class Keeping(CompiledStep):
    """Does no step."""

    def __call__(self):
        self._make_state()


def test_one_that_does_nothing_is_found_out(monkeypatch):
    given, sample = learner("mlp", sgd)
    reference = make_reference(given, (sample,), variants=0, seed=3)
    monkeypatch.setattr("autocompile.runtime.building.CompiledStep", Keeping)
    assert re.search("update|optimizer's", compare(as_trained(given, PLAN), reference, _float32()).fault)


def _float32():
    return Acceptance(published_tolerance(""))


def test_a_trial_compiles_it_alone_and_never_again(laboratory):
    kind = LEARNERS["mlp"]
    torch.manual_seed(0)
    training = Training(loss=kind.loss, optimizer=adamw, accumulate=2, clip_norm=1.0)
    laboratory.prepare(kind.model().train(), [kind.batch(), kind.batch()], training=training)
    outcome = laboratory.trial(PLAN, Limits(500.0))
    assert isinstance(outcome, Measurement), outcome
    assert outcome.counters.graphs == 1
    assert outcome.startup.compile_s > 0


def recommended(directory, plan, optimizer):
    torch.manual_seed(0)
    kind = LEARNERS["mlp"]
    model = kind.model().train()
    manifest = Manifest(
        manifest_version=MANIFEST_VERSION,
        label="recommended",
        plan=plan,
        device_type="cpu",
        identity=identity_of(model),
        serving=kind_of(plan).unpacked,
        absences=(),
        requirements=requirements(plan.runtime, with_python=False, device_type="cpu"),
        training=entry_of(model, Training(optimizer=optimizer, loss=kind.loss))[0],
        signatures=(),
    )
    directory.mkdir()
    write_manifest(directory, manifest)
    return directory


def model_and(optimizer):
    torch.manual_seed(0)
    model = LEARNERS["mlp"].model().train()
    return model, optimizer(list(model.parameters()))


def batches(count=6):
    torch.manual_seed(1)
    return [LEARNERS["mlp"].batch() for _ in range(count)]


def by_hand(optimizer, schedule):
    model, own = model_and(optimizer)
    scheduler = schedule(own)
    torch.manual_seed(2)
    for batch in batches():
        own.zero_grad()
        LEARNERS["mlp"].loss(model, batch).backward()
        own.step()
        scheduler.step()
    return model, own


def halved(optimizer):
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)


def constant(optimizer):
    return torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)


def _train(step, scheduler):
    for batch in batches():
        step(batch)
        scheduler.step()


def cycled(optimizer):
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=8)


@pytest.mark.parametrize("before", [True, False], ids=["a scheduler made before", "and after"])
@pytest.mark.parametrize("optimizer", [adamw, sgd])
def test_a_schedule_of_the_rate_compiles_nothing_anew(tmp_path, traced, optimizer, before):
    model, own = model_and(optimizer)
    scheduler = halved(own) if before else None
    step = autocompile.prepare(recommended(tmp_path / "rec", PLAN, optimizer), model, own, loss=LEARNERS["mlp"].loss)
    scheduler = scheduler or halved(own)
    began = counters().graphs
    torch.manual_seed(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # schedulers warn where the step is not as they know it
        _train(step, scheduler)
    assert counters().graphs == began + 1
    other, theirs = by_hand(optimizer, halved)
    for parameter, expected in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(parameter, expected, rtol=1e-4, atol=1e-6)
    groups = [{**group, "params": []} for group in own.param_groups]
    assert groups == [{**group, "params": []} for group in theirs.param_groups], "all settings are as without"
    assert "no longer compiled" not in str(step.status.notes)


def test_what_else_is_scheduled_is_done_without_the_compiler_and_told(tmp_path, traced):
    model, own = model_and(sgd)
    step = autocompile.prepare(recommended(tmp_path / "rec", PLAN, sgd), model, own, loss=LEARNERS["mlp"].loss)
    scheduler = cycled(own)
    torch.manual_seed(2)
    with pytest.warns(RuntimeWarning, match="settings other than the learning rate change from step to step"):
        _train(step, scheduler)
    assert any("no longer compiled" in note for note in step.status.notes)
    other, _own = by_hand(sgd, cycled)
    for parameter, expected in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(parameter, expected, rtol=1e-4, atol=1e-6)


def test_where_compiling_fails_the_step_is_done_once_and_told(tmp_path, monkeypatch):
    def fails(_graph, _inputs):
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(
        InductorRuntime, "compiled_update", lambda _self, update: torch.compile(update, fullgraph=True, backend=fails)
    )
    model, own = model_and(adamw)
    step = autocompile.prepare(recommended(tmp_path / "rec", PLAN, adamw), model, own, loss=LEARNERS["mlp"].loss)
    torch.manual_seed(2)
    scheduler = constant(own)
    with pytest.warns(RuntimeWarning, match="compiling it failed"):
        _train(step, scheduler)
    other, theirs = by_hand(adamw, constant)
    for parameter, expected in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(parameter, expected)
    done = [one.state_dict()["state"][0]["step"] for one in (own, theirs)]
    assert done == [len(batches())] * 2


def test_a_checkpoint_goes_on_without_this_library(tmp_path, traced):
    model, own = model_and(sgd)
    step = autocompile.prepare(recommended(tmp_path / "rec", PLAN, sgd), model, own, loss=LEARNERS["mlp"].loss)
    for batch in batches(2):
        step(batch)
    saved = own.state_dict()
    json.dumps(saved["param_groups"])  # numbers, and no tensors
    _model, other = model_and(sgd)
    other.load_state_dict(saved)
    assert [held["momentum_buffer"].shape for held in other.state.values()] == [p.shape for p in model.parameters()]
    own.load_state_dict(saved)
    step(batches(1)[0])
    assert not any("no longer compiled" in note for note in step.status.notes)


def test_the_snippet_does_the_same():
    own_loss, batch = LEARNERS["mlp"].loss, batches(1)[0]
    code = snippet(PLAN, device_type="cpu", is_module=True, training=entry())
    assert "torch.compile(optimizer.step)" in code
    model, optimizer = model_and(adamw)
    names = {"model": model, "optimizer": optimizer, "loss": own_loss}
    scheduler = halved(optimizer)
    exec(code, names)
    names["step"](batch)
    began = counters().graphs
    for _ in range(3):
        scheduler.step()
        names["step"](batch)
    assert counters().graphs == began, "a schedule fills the rate"


def entry():
    return entry_of(model_and(adamw)[0], Training(optimizer=adamw, loss=LEARNERS["mlp"].loss))[0]


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        (torch.optim.Adafactor, "not one of torch's own"),
        (lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, dampening=0.5), "dampening"),
        (lambda parameters: Own(parameters, lr=0.1), "not one of torch's own"),
    ],
)
def test_an_optimizer_whose_step_is_not_compiled_is_closed_with_the_reason(optimizer, words):
    told, _digest = entry_of(model_and(adamw)[0], Training(optimizer=optimizer, loss=LEARNERS["mlp"].loss))
    assert words in told.without["compiled"]


class Own(torch.optim.SGD):
    def step(self, closure=None):
        return super().step(closure)
