"""Losses scaled for gradients in float16: enabled here by a plan; a search enables them only on GPUs."""

import math

import pytest
import torch
from learners import LEARNERS, adamw, learner
from msgspec.structs import replace

import autocompile
from autocompile.artifact.integrity import write_manifest
from autocompile.artifact.mismatch import requirements
from autocompile.artifact.trained_script import TrainedScript
from autocompile.core.errors import InvalidRecommendation, UsageError
from autocompile.core.job import Acceptance, Limits
from autocompile.core.manifest import MANIFEST_VERSION, Manifest
from autocompile.core.outcome import Measurement
from autocompile.core.plan import Plan
from autocompile.core.tolerance import published_tolerance
from autocompile.runtime.building import as_trained
from autocompile.runtime.catalogue import kind_of
from autocompile.runtime.snippet import snippet
from autocompile.trial.check.alongside import Lesson, learn_alongside, yardstick_of
from autocompile.trial.check.compare import compare
from autocompile.trial.check.reference import make_reference
from autocompile.workload.identity.facts import identity_of
from autocompile.workload.training.entry import entry_of
from autocompile.workload.training.step import TrainingStep
from autocompile.workload.training.training import Training

pytestmark = pytest.mark.usefixtures("one_thread")
HALF = Plan(autocast="float16")
ACCEPTANCE = Acceptance(published_tolerance("float16"))
# With such a large loss, the gradients overflow at the first scales.
LARGE = 100.0


def steep(model, batch):
    inputs, targets = batch
    return LARGE * torch.nn.functional.mse_loss(model(inputs), targets)


def given(*, loss=steep, clip_norm=None):
    step, sample = learner("mlp", accumulate=2, clip_norm=clip_norm)
    for module in step.module.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    training = Training(loss=loss, optimizer=adamw, accumulate=2, clip_norm=clip_norm)
    return TrainingStep(step.module, training), sample


@pytest.mark.parametrize("optimizer", ["", "fused"])
@pytest.mark.parametrize("clip_norm", [None, 0.5])
def test_a_scale_that_overflows_at_first_and_settles_is_no_fault(clip_norm, optimizer):
    baseline, sample = given(clip_norm=clip_norm)
    reference = make_reference(baseline, (sample,), variants=1, seed=3)
    step = as_trained(baseline, replace(HALF, optimizer=optimizer))
    first = step.scaler.get_scale()
    assert compare(step, reference, ACCEPTANCE).fault == ""
    assert step.scaler.get_scale() < first, "there was an overflow"


class Scaled(TrainingStep):
    """Never unscales."""

    def update(self):
        self.scaler.unscale_ = lambda _optimizer: None
        self.optimizer.step()


class Skipping(TrainingStep):
    """Takes every gradient for one that overflowed."""

    def update(self):
        self.scaler.unscale_(self.optimizer)
        self.scaler.update()


@pytest.mark.parametrize(("wrong", "words"), [(Scaled, "gradient"), (Skipping, "optimizer's")])
def test_what_is_done_wrong_is_found(wrong, words):
    baseline, sample = given(loss=LEARNERS["mlp"].loss)
    reference = make_reference(baseline, (sample,), variants=0, seed=3)
    step = as_trained(baseline, HALF)
    step.__class__ = wrong
    assert words in compare(step, reference, ACCEPTANCE).fault


def test_one_that_overflows_at_any_scale_is_a_fault():
    baseline, sample = given(loss=LEARNERS["mlp"].loss)
    reference = make_reference(baseline, (sample,), variants=0, seed=3)
    step = as_trained(baseline, HALF)
    hook = next(step.module.parameters()).register_hook(lambda gradient: gradient * math.inf)
    assert compare(step, reference, ACCEPTANCE).fault
    hook.remove()


def test_it_learns_beside_eager_from_a_settled_scale():
    baseline, sample = given()
    lesson = Lesson((sample,), 3, 60.0)
    step, near = as_trained(baseline, HALF), as_trained(baseline, HALF)
    yardstick = yardstick_of(baseline, near, lesson, random=False)
    found = learn_alongside(step, None, yardstick, lesson)
    assert (found.fault, found.learned.steps) == ("", 32)
    assert found.learned.off <= 0.2 * abs(found.learned.first - found.learned.last)


def test_a_trial_in_float16_is_measured(laboratory):
    kind = LEARNERS["mlp"]
    torch.manual_seed(0)
    training = Training(loss=steep, optimizer=adamw, clip_norm=1.0)
    laboratory.prepare(kind.model().train(), [kind.batch(), kind.batch()], training=training)
    outcome = laboratory.trial(HALF, Limits(300.0))
    assert isinstance(outcome, Measurement), outcome


def recommended(directory, plan, *, clip_norm=None):
    model, _optimizer = model_and()
    training = Training(optimizer=adamw, loss=steep, clip_norm=clip_norm)
    manifest = Manifest(
        manifest_version=MANIFEST_VERSION,
        label="recommended",
        plan=plan,
        device_type="cpu",
        identity=identity_of(model),
        serving=kind_of(plan).unpacked,
        absences=(),
        requirements=requirements(plan.runtime, with_python=False, device_type="cpu"),
        training=entry_of(model, training)[0],
        signatures=(),
    )
    directory.mkdir()
    write_manifest(directory, manifest)
    return directory


def model_and():
    torch.manual_seed(0)
    model = LEARNERS["mlp"].model().eval()
    return model, adamw(list(model.parameters()))


def batches(count=12):
    torch.manual_seed(1)
    return [LEARNERS["mlp"].batch() for _ in range(count)]


def by_hand(clip_norm, given=None, scale=65536.0):
    model, optimizer = model_and()
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    for batch in given or batches():
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = steep(model, batch)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        scaler.step(optimizer)
        scaler.update()
    return model, scaler


@pytest.mark.parametrize("way", ["called", "by its parts", "the snippet"])
def test_a_prepared_step_and_the_snippet_scale_as_by_hand(tmp_path, way):
    model, optimizer = model_and()
    expected, scaler = by_hand(0.5)
    if way == "the snippet":
        entry = entry_of(model, Training(optimizer=adamw, loss=steep, clip_norm=0.5))[0]
        names = {"model": model, "optimizer": optimizer, "loss": steep}
        exec(snippet(HALF, device_type="cpu", is_module=True, training=entry), names)
        does, own = names["step"], names["scaler"]
    else:
        step = autocompile.prepare(recommended(tmp_path / "rec", HALF, clip_norm=0.5), model, optimizer, loss=steep)
        does, own = step, step.scaler
        if way == "by its parts":
            does = by_parts(step, model)
    for batch in batches():
        does(batch)
    assert own.get_scale() == scaler.get_scale() < 65536
    for parameter, other in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(parameter, other, rtol=0, atol=0)


def by_parts(step, model):
    def does(batch):
        step.optimizer.zero_grad()
        step.backward(step.loss(batch))
        step.scaler.unscale_(step.optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        step.scaler.step(step.optimizer)
        step.scaler.update()

    return does


def test_a_loop_without_the_scaler_is_stopped_before_it_learns_from_scaled_gradients(tmp_path):
    model, optimizer = model_and()
    step = autocompile.prepare(recommended(tmp_path / "rec", HALF), model, optimizer, loss=steep)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    step.backward(step.loss(batches(1)[0]))
    with pytest.raises(UsageError, match=r"step\.scaler\.step"):
        step.optimizer.step()
    assert all(map(torch.equal, before, model.parameters()))


@pytest.mark.parametrize("fault", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["clipping", "the optimizer's step"])
def test_a_step_that_was_broken_off_leaves_the_next_one_whole(tmp_path, monkeypatch, where, fault):
    model, optimizer = model_and()
    step = autocompile.prepare(recommended(tmp_path / "rec", HALF, clip_norm=0.5), model, optimizer, loss=steep)
    before, broken, after = batches(3)
    expected, _scaler = by_hand(0.5, [before, after], 1024.0)

    def breaks(*_given, **_also):
        raise fault

    place, name = (torch.nn.utils, "clip_grad_norm_") if where == "clipping" else (optimizer, "step")
    step.scaler.load_state_dict({**step.scaler.state_dict(), "scale": 1024.0})  # at which nothing overflows
    step(before)
    with monkeypatch.context() as patched:
        patched.setattr(place, name, breaks)
        with pytest.raises(fault):
            step(broken)
    step(after)
    assert all(map(torch.equal, model.parameters(), expected.parameters()))


def test_in_other_precisions_a_loop_with_the_scaler_does_the_same(tmp_path):
    model, optimizer = model_and()
    step = autocompile.prepare(recommended(tmp_path / "rec", Plan()), model, optimizer, loss=steep)
    other, theirs = model_and()
    does = by_parts(step, model)
    for batch in batches(3):
        does(batch)
        theirs.zero_grad()
        steep(other, batch).backward()
        torch.nn.utils.clip_grad_norm_(other.parameters(), 0.5)
        theirs.step()
    assert all(map(torch.equal, model.parameters(), other.parameters()))


def test_a_script_is_not_run_with_a_loss_that_it_does_not_scale(tmp_path):
    with pytest.raises(InvalidRecommendation, match="scales the loss"):
        TrainedScript(recommended(tmp_path / "rec", HALF))


def test_gradients_that_the_optimizer_does_not_hold_close_it():
    model, _optimizer = model_and()
    some = torch.optim.SGD(model[0].parameters(), lr=0.1)
    assert "does not hold" in entry_of(model, Training(optimizer=some, loss=steep))[0].without["fp16"]
