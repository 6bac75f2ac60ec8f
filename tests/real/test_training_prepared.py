"""`autocompile.prepare`: a recommendation applied to the user's model and optimizer, compared with plain loops."""

import copy
import json
import os
import subprocess
import sys
import warnings

import pytest
import torch
from learners import LEARNERS as SHARED
from learners import Learner, adamw, fitted
from msgspec.structs import replace
from places import REPOSITORY
from servings import CARRIED
from torch import nn
from torch._dynamo.backends.common import aot_autograd

import autocompile
from autocompile.artifact.integrity import entry_for, manifest_digest, open_manifest, write_manifest
from autocompile.artifact.mismatch import requirements
from autocompile.core.errors import InvalidArtifact, InvalidRecommendation, InvalidWorkload, UsageError
from autocompile.core.manifest import MANIFEST_VERSION, Manifest
from autocompile.core.plan import Plan
from autocompile.runtime.catalogue import kind, kind_of
from autocompile.runtime.inductor.counters import counters
from autocompile.runtime.inductor.runtime import InductorRuntime
from autocompile.runtime.inductor.settings import compiled
from autocompile.runtime.recomputation import Recomputed
from autocompile.runtime.snippet import snippet
from autocompile.workload.identity.facts import identity_of
from autocompile.workload.samples import signatures_of
from autocompile.workload.training.entry import entry_of
from autocompile.workload.training.training import Training, own_loss

# These warnings come from the compiler, which would fail if they were errors.
pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),
]

TRACED = compiled(backend="aot_eager")
TEN = 10
# The transformer's blocks.
LAYERS = ("blocks.0", "blocks.1")


class Block(nn.Module):
    """Of a class of its own: the compiler leaves torch's own modules alone where each is compiled by itself."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm, self.dropout = nn.Linear(10, 10), nn.BatchNorm1d(10), nn.Dropout(0.1)

    def forward(self, x):
        return x + self.dropout(self.norm(torch.relu(self.linear(x))))


def blocks():
    return nn.Sequential(Block(), Block(), nn.Linear(10, 1))


LEARNERS = {**SHARED, "blocks": Learner(blocks, fitted, SHARED["mlp"].batch)}


@pytest.fixture(autouse=True)
def fresh_compiler():
    """A test's recompilations are its own."""
    torch.compiler.reset()


def model_of(name, *, dropout=False):
    torch.manual_seed(0)
    model = LEARNERS[name].model().train()
    for module in model.modules() if not dropout else ():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        elif isinstance(module, nn.MultiheadAttention | nn.LSTM):
            module.dropout = 0.0
    return model


def batches_of(name, count=TEN):
    torch.manual_seed(1)
    return [LEARNERS[name].batch() for _ in range(count)]


class Recommender:
    """Writes recommendations for learners, as a search leaves them."""

    def __init__(self, directory):
        self.directory, self.count = directory, 0

    def __call__(self, name, plan, *, loss=None, accumulate=1, clip_norm=None, **changed):
        self.count += 1
        model, loss = model_of(name), loss or LEARNERS[name].loss
        training = Training(optimizer=adamw, loss=loss, accumulate=accumulate, clip_norm=clip_norm)
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
            signatures=signatures_of(training.samples_of(batches_of(name, accumulate))),
        )
        directory = self.directory / str(self.count)
        directory.mkdir(parents=True)
        write_manifest(directory, replace(manifest, **changed))
        return directory


@pytest.fixture
def recommend(tmp_path):
    return Recommender(tmp_path / "recommended")


def by_hand(name, *, accumulate=1, clip_norm=None, amp=False, dropout=False):
    """What a plain eager loop over ten batches makes of the model: losses, and the model."""
    model = model_of(name, dropout=dropout)
    optimizer = adamw(list(model.parameters()))
    batches = batches_of(name, TEN * accumulate)
    torch.manual_seed(2)
    losses = []
    for start in range(0, len(batches), accumulate):
        optimizer.zero_grad()
        total = 0.0
        for batch in batches[start : start + accumulate]:
            with torch.autocast("cpu", torch.bfloat16, enabled=amp):
                loss = LEARNERS[name].loss(model, batch) / accumulate
            loss.backward()
            total += loss.item()
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()
        losses.append(total)
    return losses, model


def prepared(directory, name, *, dropout=False, **options):
    """A step on a model and an optimizer of the learner's, and both."""
    model = model_of(name, dropout=dropout)
    optimizer = adamw(list(model.parameters()))
    step = autocompile.prepare(directory, model, optimizer, loss=LEARNERS[name].loss, **options)
    return step, model, optimizer


def trained(step, name, *, accumulate=1):
    batches = batches_of(name, TEN * accumulate)
    torch.manual_seed(2)
    return [step(*batches[start : start + accumulate]).item() for start in range(0, len(batches), accumulate)]


def assert_same(model, other, **limits):
    for (key, value), expected in zip(model.state_dict().items(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(value, expected, **limits, msg=lambda said, key=key: f"{key}: {said}")


@pytest.mark.parametrize(("accumulate", "clip_norm"), [(1, None), (1, 0.1), (3, None), (2, 0.1)])
@pytest.mark.parametrize("name", LEARNERS)
def test_eager_steps_are_the_users_own_loop(recommend, name, accumulate, clip_norm):
    directory = recommend(name, Plan(), accumulate=accumulate, clip_norm=clip_norm)
    losses, own = by_hand(name, accumulate=accumulate, clip_norm=clip_norm, dropout=True)
    step, model, _optimizer = prepared(directory, name, dropout=True)
    assert trained(step, name, accumulate=accumulate) == pytest.approx(losses, rel=1e-6)
    assert_same(model, own, rtol=0, atol=0)
    assert step.status.steps == {"eager": TEN}
    assert step.status.fallbacks == ()
    assert step.status.notes == ()


@pytest.mark.parametrize(
    ("name", "accumulate", "clip_norm"),
    [("transformer", 1, None), ("cnn", 2, 0.1), ("mlp", 1, 0.1), ("blocks", 2, None)],
)
def test_compiled_steps_learn_the_same(recommend, name, accumulate, clip_norm):
    directory = recommend(name, replace(TRACED, optimizer="fused"), accumulate=accumulate, clip_norm=clip_norm)
    losses, own = by_hand(name, accumulate=accumulate, clip_norm=clip_norm)
    step, model, _optimizer = prepared(directory, name)
    assert trained(step, name, accumulate=accumulate) == pytest.approx(losses, rel=1e-4)
    if name in {"mlp", "blocks"}:  # the others have biases without effect, whose Adam steps have arbitrary directions
        assert_same(model, own, rtol=1e-3, atol=1e-4)
    assert step.status.runtime == "inductor"
    assert step.status.start == "compile"
    assert step.status.steps == {"inductor": TEN}
    assert step.status.fallbacks == ()


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("transformer", Plan(recomputed=LAYERS, micro_batches=2)),
        ("transformer", replace(compiled(backend="aot_eager", scope=LAYERS), recomputed=LAYERS)),
        ("mlp", replace(TRACED, micro_batches=4)),
        ("lstm", Plan(micro_batches=2)),
    ],
)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_steps_in_less_memory_learn_the_same(recommend, name, plan, accumulate):
    directory = recommend(name, plan, accumulate=accumulate, clip_norm=0.1)
    losses, _own = by_hand(name, accumulate=accumulate, clip_norm=0.1)
    step, _model, _optimizer = prepared(directory, name)
    assert trained(step, name, accumulate=accumulate) == pytest.approx(losses, rel=1e-4)
    assert list(step.state_dict()) == list(model_of(name).state_dict())
    assert step.status.fallbacks == ()
    assert not any("not cut" in note for note in step.status.notes)


@pytest.mark.parametrize("plan", [Plan(attention="math"), Plan(attention="math", autocast="bfloat16"), TRACED])
def test_attention_is_computed_as_the_plan_says_in_steps_and_in_loops_of_ones_own(recommend, plan):
    plan = replace(plan, attention="math")
    directory = recommend("transformer", plan)
    losses, _own = by_hand("transformer", amp=bool(plan.autocast))
    step, _model, _optimizer = prepared(directory, "transformer")
    assert trained(step, "transformer") == pytest.approx(losses, rel=1e-2 if plan.autocast else 1e-4)
    assert torch.backends.cuda.flash_sdp_enabled()
    with step.autocast():
        assert not torch.backends.cuda.flash_sdp_enabled()
        assert torch.is_autocast_enabled("cpu") == bool(plan.autocast)
    assert torch.backends.cuda.flash_sdp_enabled()


def test_what_is_computed_again_drops_out_as_the_users_own_loop(recommend):
    losses, own = by_hand("transformer", dropout=True)
    step, model, _optimizer = prepared(recommend("transformer", Plan(recomputed=LAYERS)), "transformer", dropout=True)
    assert trained(step, "transformer") == losses
    assert_same(model, own, rtol=0, atol=0)


def test_a_model_that_computes_again_already_is_still_the_one_that_was_tuned(recommend):
    directory = recommend("transformer", Plan(recomputed=LAYERS))
    _step, model, optimizer = prepared(directory, "transformer")
    held = [block.forward for block in model.blocks]
    again = autocompile.prepare(directory, model, optimizer, loss=LEARNERS["transformer"].loss)
    assert again.status.label == "recommended"
    assert again.status.notes == ()
    assert [block.forward for block in model.blocks] == held


def test_a_batch_that_cannot_be_cut_is_trained_whole_and_told(recommend):
    step, _model, _optimizer = prepared(recommend("mlp", Plan(micro_batches=4)), "mlp")
    batch = torch.randn(30, 10), torch.randn(30, 1)
    other, _model, _optimizer = prepared(recommend("mlp", Plan()), "mlp")
    with pytest.warns(
        RuntimeWarning, match="a batch was not cut into micro-batches: a batch of 30 has no 4 equal parts"
    ):
        loss = step(batch)
    assert float(loss) == pytest.approx(float(other(batch)))
    step(batch)
    assert len([note for note in step.status.notes if "not cut" in note]) == 1
    assert len(step.parts((torch.ones(8, 10), torch.ones(8, 1)))) == 4


def test_without_the_compiler_memory_is_saved_all_the_same(recommend):
    """What cannot be compiled trains eager, in as little memory as the plan has it."""
    plan = replace(compiled(backend="broken_forward"), recomputed=LAYERS, micro_batches=2)
    losses, _own = by_hand("transformer")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        step, model, _optimizer = prepared(recommend("transformer", plan), "transformer")
        assert trained(step, "transformer") == pytest.approx(losses, rel=1e-4)
    assert "compiling failed" in step.status.fallbacks[0].reason
    assert all(isinstance(block.forward, Recomputed) for block in model.blocks)
    assert len(step.parts(batches_of("transformer", 1)[0])) == 2


def test_inductor_learns_the_same(recommend):
    losses, own = by_hand("mlp")
    step, model, _optimizer = prepared(recommend("mlp", compiled()), "mlp")
    assert trained(step, "mlp") == pytest.approx(losses, rel=1e-4)
    assert_same(model, own, rtol=1e-3, atol=1e-4)


def test_reduced_precision_is_the_plans(recommend):
    losses, _own = by_hand("mlp", amp=True)
    full, _own = by_hand("mlp")
    step, _model, _optimizer = prepared(recommend("mlp", Plan(autocast="bfloat16")), "mlp")
    got = trained(step, "mlp")
    assert got == pytest.approx(losses, rel=1e-6)
    assert got != pytest.approx(full, rel=1e-6)
    assert got == pytest.approx(full, rel=3e-2)


@pytest.mark.parametrize("plan", [replace(TRACED, optimizer="fused", autocast="bfloat16"), Plan(optimizer="foreach")])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_its_parts_by_hand_do_what_it_does(recommend, plan, accumulate):
    directory = recommend("mlp", plan, accumulate=accumulate)
    whole, model, _optimizer = prepared(directory, "mlp")
    losses = trained(whole, "mlp", accumulate=accumulate)
    parts, other, optimizer = prepared(directory, "mlp")
    batches = batches_of("mlp", TEN * accumulate)
    torch.manual_seed(2)
    own = []
    for start in range(0, len(batches), accumulate):
        parts.optimizer.zero_grad()
        total = 0.0
        for batch in batches[start : start + accumulate]:
            with parts.autocast():
                loss = LEARNERS["mlp"].loss(parts.model, batch)
            parts.backward(loss)
            total += loss.item() / accumulate
        parts.optimizer.step()
        own.append(total)
    assert parts.optimizer is optimizer
    assert own == pytest.approx(losses, rel=1e-6)
    assert_same(model, other, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("mlp", TRACED),
        ("mlp", compiled(backend="aot_eager", with_loss=True)),
        ("blocks", compiled(backend="aot_eager", scope=("0", "1"))),
        ("blocks", compiled(backend="aot_eager", left_eager=("0.norm",))),
        ("cnn", Plan(memory_format="channels_last", optimizer="fused", autocast="bfloat16")),
        ("transformer", Plan(recomputed=LAYERS)),
        ("transformer", replace(TRACED, recomputed=LAYERS, micro_batches=2, autocast="bfloat16")),
        ("mlp", Plan(micro_batches=4)),
    ],
    ids=["whole", "with loss", "blocks", "left eager", "laid out", "computed again", "in less memory", "in parts"],
)
@pytest.mark.parametrize("accumulate", [1, 3])
def test_the_snippet_learns_the_same(recommend, name, plan, accumulate):
    directory = recommend(name, plan, accumulate=accumulate, clip_norm=0.5)
    step, model, _optimizer = prepared(directory, name)
    losses = trained(step, name, accumulate=accumulate)
    torch.compiler.reset()
    other = model_of(name)
    entry = open_manifest(directory).training
    pasted = {"model": other, "optimizer": adamw(list(other.parameters())), "loss": LEARNERS[name].loss}
    exec(snippet(plan, device_type="cpu", is_module=True, training=entry), pasted)
    # The parts of a batch are summed in another order.
    assert trained(pasted["step"], name, accumulate=accumulate) == pytest.approx(losses, rel=1e-6, abs=0)
    assert_same(model, other, rtol=0, atol=0)


def test_a_loss_that_is_compiled_with_the_model_is_a_part_of_the_step(recommend):
    directory = recommend("mlp", compiled(backend="aot_eager", with_loss=True))
    step, model, _optimizer = prepared(directory, "mlp")
    assert "torch.compile(loss" in snippet(
        compiled(with_loss=True), device_type="cpu", is_module=True, training=open_manifest(directory).training
    )
    before = counters().graphs
    batch = batches_of("mlp", 1)[0]
    loss = step.loss(batch)
    assert counters().graphs == before + 1
    step.backward(loss)
    given = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    LEARNERS["mlp"].loss(model, batch).backward()
    for own, parameter in zip(given, model.parameters(), strict=True):
        torch.testing.assert_close(own, parameter.grad)
    # A user's own loop may compute another loss from the model.
    assert step.model(batch[0]).shape == model(batch[0]).shape


def test_nothing_of_the_users_is_replaced(recommend):
    plan = replace(TRACED, memory_format="channels_last", optimizer="fused")
    directory = recommend("cnn", plan)
    model = model_of("cnn")
    optimizer = adamw(list(model.parameters()))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    before = dict(model.named_parameters()), list(map(id, optimizer.param_groups)), list(model.state_dict())
    buffers = list(map(id, model.buffers()))
    step = autocompile.prepare(directory, model, optimizer, loss=LEARNERS["cnn"].loss)
    step(*batches_of("cnn", 1))
    scheduler.step()
    assert step.optimizer is optimizer
    assert all(parameter is before[0][name] for name, parameter in model.named_parameters())
    assert list(map(id, model.buffers())) == buffers
    assert list(map(id, optimizer.param_groups)) == before[1]
    assert optimizer.param_groups[0]["lr"] == 5e-4
    assert optimizer.param_groups[0]["fused"] is True
    held = {id(parameter) for parameter in step.model.parameters()}
    assert held == {id(parameter) for parameter in model.parameters()}
    assert list(step.state_dict()) == list(model.state_dict()) == before[2]
    other = model_of("cnn")
    other.load_state_dict(step.state_dict())
    assert_same(model, other, rtol=0, atol=0)


def test_it_takes_a_state_under_the_models_names(recommend):
    step, model, _optimizer = prepared(recommend("mlp", TRACED), "mlp")
    _losses, own = by_hand("mlp")
    step.load_state_dict(own.state_dict())
    assert_same(model, own, rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="Missing key"):
        step.load_state_dict({})


@pytest.mark.parametrize("name", ["fused", "foreach"])
def test_an_optimizer_that_has_trained_goes_on(recommend, name):
    """As a loop does that loads a checkpoint: moments and counters stay, where the implementation reads them."""
    directory = recommend("mlp", Plan(optimizer=name))
    losses = []
    for prepares in (False, True):
        model = model_of("mlp")
        optimizer = adamw(list(model.parameters()))
        for batch in batches_of("mlp", 3):
            optimizer.zero_grad()
            LEARNERS["mlp"].loss(model, batch).backward()
            optimizer.step()
        moments = [copy.deepcopy(held) for held in optimizer.state.values()]
        path = directory if prepares else recommend("mlp", Plan())
        step = autocompile.prepare(path, model, optimizer, loss=LEARNERS["mlp"].loss)
        assert len(moments) == len(list(model.parameters()))
        for held, kept in zip(moments, optimizer.state.values(), strict=True):
            assert held.keys() == kept.keys()
            assert all(torch.equal(held[key], kept[key]) for key in held)
        losses.append(trained(step, "mlp"))
        assert float(next(iter(optimizer.state.values()))["step"]) == 3 + TEN
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


@pytest.mark.parametrize("saved_by", ["a plain loop", "a prepared step"])
def test_a_checkpoint_goes_on_in_either_loop(recommend, saved_by):
    """The optimizer's state is loaded after `prepare`, and what is saved then is as a plain loop would save it."""
    directory = recommend("cnn", Plan(memory_format="channels_last", optimizer="fused"))
    batches = batches_of("cnn", 2 * TEN)
    own, plain = model_of("cnn"), model_of("cnn")
    optimizers = {one: adamw(list(one.parameters())) for one in (own, plain)}
    step = autocompile.prepare(directory, own, optimizers[own], loss=LEARNERS["cnn"].loss)

    def by_itself(batch):
        optimizers[plain].zero_grad()
        LEARNERS["cnn"].loss(plain, batch).backward()
        optimizers[plain].step()

    first, second = (by_itself, step) if saved_by == "a plain loop" else (step, by_itself)
    source, target = (plain, own) if saved_by == "a plain loop" else (own, plain)
    for batch in batches[:TEN]:
        first(batch)
    saved = copy.deepcopy(optimizers[source].state_dict())
    assert not any(group["fused"] for group in saved["param_groups"])
    target.load_state_dict(copy.deepcopy(source.state_dict()))
    optimizers[target].load_state_dict(saved)
    assert all(bool(group["fused"]) is (target is own) for group in optimizers[target].param_groups)
    for batch in batches[TEN:]:
        second(batch)
    through = model_of("cnn")
    optimizer = adamw(list(through.parameters()))
    for batch in batches:
        optimizer.zero_grad()
        LEARNERS["cnn"].loss(through, batch).backward()
        optimizer.step()
    # Not the bias: before batch normalization its gradient is only rounding error, and Adam makes full steps of it.
    found, expected = (one.get_parameter("0.weight") for one in (target, through))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


def test_the_models_own_loss_needs_none(recommend):
    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = model_of("mlp")

        def forward(self, x, y):
            return {"loss": nn.functional.mse_loss(self.net(x), y)}

    torch.manual_seed(0)
    model = WithLoss().train()
    training = Training(optimizer=adamw)
    directory = recommend("mlp", TRACED, identity=identity_of(model), training=entry_of(model, training)[0])
    step = autocompile.prepare(directory, model, adamw(model.parameters()))
    losses, _own = by_hand("mlp")
    assert trained(step, "mlp") == pytest.approx(losses, rel=1e-4)
    other = autocompile.prepare(directory, model, adamw(model.parameters()), loss=lambda *given: 2 * own_loss(*given))
    assert any("another loss is given" in note for note in other.status.notes)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"torch": "1.0"}, "packed with torch 1.0"),
        ({"architecture": "alpha"}, "packed on alpha"),
        ({"instructions": ("vax",)}, "lacks vax"),
    ],
)
def test_another_machine_trains_as_recommended_and_is_told(recommend, changed, said):
    here = requirements("inductor", with_python=False, device_type="cpu")
    directory = recommend("mlp", TRACED, requirements=replace(here, **changed))
    with pytest.warns(RuntimeWarning, match=f"{said}.*not verified here") as told:
        step, _model, _optimizer = prepared(directory, "mlp")
    assert len(told) == 1
    assert any(said in note for note in step.status.notes)
    assert trained(step, "mlp") == pytest.approx(by_hand("mlp")[0], rel=1e-4)
    with pytest.raises(InvalidRecommendation, match=f"{said}.*tune it again"):
        prepared(directory, "mlp", on_mismatch="error")


def test_another_model_is_trained_as_it_is(recommend):
    directory = recommend("mlp", replace(TRACED, optimizer="fused", autocast="bfloat16", threads=2))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
    own = copy.deepcopy(model)
    optimizer = adamw(model.parameters())
    with pytest.warns(RuntimeWarning, match="not the one that was tuned.*trained eager, as given") as told:
        step = autocompile.prepare(directory, model, optimizer, loss=LEARNERS["mlp"].loss)
    losses = trained(step, "mlp")
    assert len(told) == 1
    assert step.model is model
    assert not optimizer.param_groups[0]["fused"]
    assert torch.get_num_threads() == 1
    (fallback,) = step.status.fallbacks
    assert "not the one that was tuned" in fallback.reason
    assert fallback.steps == TEN
    assert (step.status.runtime, step.status.label) == ("eager", "eager")
    plain = adamw(own.parameters())
    for batch, loss in zip(batches_of("mlp"), losses, strict=True):
        plain.zero_grad()
        value = LEARNERS["mlp"].loss(own, batch)
        value.backward()
        plain.step()
        assert value.item() == loss
    with pytest.raises(InvalidRecommendation, match="not the one that was tuned"):
        autocompile.prepare(directory, model, optimizer, loss=LEARNERS["mlp"].loss, on_mismatch="error")


def test_another_type_of_device_is_trained_as_it_is(recommend):
    directory = recommend("mlp", TRACED, device_type="meta")
    with pytest.warns(RuntimeWarning, match="tuned on meta, but the model is on cpu.*trained eager"):
        step, _model, _optimizer = prepared(directory, "mlp")
    assert trained(step, "mlp") == by_hand("mlp")[0]


def test_a_runtime_that_lacks_something_here_leaves_the_rest(recommend, monkeypatch):
    directory = recommend("mlp", replace(TRACED, autocast="bfloat16"))
    monkeypatch.setattr(type(kind("inductor")), "lacks", lambda _self, _device: "there is no C++ compiler here")
    with pytest.warns(RuntimeWarning, match="no C\\+\\+ compiler here; the model is trained without the compiler"):
        step, model, _optimizer = prepared(directory, "mlp")
    assert step.model is model
    assert trained(step, "mlp") == pytest.approx(by_hand("mlp", amp=True)[0], rel=1e-6)
    assert step.status.fallbacks[0].steps == TEN


class Plain(torch.optim.Optimizer):
    """Of a user's own: it has one implementation."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.01})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(parameter.grad, alpha=group["lr"])


def test_an_optimizer_without_the_implementation_keeps_its_own(recommend):
    directory = recommend("mlp", replace(TRACED, optimizer="fused"))
    model = model_of("mlp")
    optimizer = Plain(model.parameters())
    with pytest.warns(RuntimeWarning, match="Plain has no fused implementation; the optimizer keeps its own") as told:
        step = autocompile.prepare(directory, model, optimizer, loss=LEARNERS["mlp"].loss)
    losses = trained(step, "mlp")
    assert losses[0] == pytest.approx(by_hand("mlp")[0][0], rel=1e-4)
    assert losses[-1] != losses[0]
    assert len(told) == 1
    assert "fused" not in optimizer.param_groups[0]
    assert step.status.runtime == "inductor"
    assert any("no fused implementation" in note for note in step.status.notes)
    assert any("measured with AdamW, and this is Plain" in note for note in step.status.notes)


def broken(_graph, _inputs):
    raise RuntimeError("this backend is broken")


@torch._dynamo.register_backend
def broken_forward(graph, inputs):
    return broken(graph, inputs)


@torch._dynamo.register_backend
def broken_backward(graph, inputs):
    return aot_autograd(fw_compiler=lambda given, _inputs: given.forward, bw_compiler=broken)(graph, inputs)


@pytest.mark.parametrize("backend", ["broken_forward", "broken_backward"])
@pytest.mark.parametrize(
    ("name", "settings"), [("cnn", {}), ("blocks", {}), ("blocks", {"scope": ("0", "1"), "left_eager": ("1.norm",)})]
)
def test_where_compiling_fails_it_trains_on_without(recommend, name, backend, settings):
    """From the first step on, with dropout and batch statistics as if nothing had been tried."""
    directory = recommend(name, compiled(backend=backend, **settings), accumulate=2)
    losses, own = by_hand(name, accumulate=2, dropout=True)
    step, model, _optimizer = prepared(directory, name, dropout=True)
    with pytest.warns(RuntimeWarning, match="compiling failed.*trains without the compiler") as told:
        assert trained(step, name, accumulate=2) == pytest.approx(losses, rel=1e-6)
    assert sum("compiling failed" in str(one.message) for one in told) == 1
    assert_same(model, own, rtol=0, atol=0)
    assert step.model is model
    assert step.status.steps == {"eager": TEN}
    (fallback,) = step.status.fallbacks
    assert "this backend is broken" in fallback.reason
    assert fallback.steps == TEN
    assert all(vars(module).get("_compiled_call_impl") is None for module in model.modules())
    assert not any("forward" in vars(module) for module in model.modules())


def test_a_users_own_error_is_the_users(recommend):
    step, model, _optimizer = prepared(recommend("mlp", TRACED), "mlp")
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(RuntimeError, match="shape"):
        step((torch.randn(4, 9), torch.randn(4, 1)))
    assert step.status.runtime == "inductor"
    assert step.status.steps == {}
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    step(*batches_of("mlp", 1))
    assert step.status.steps == {"inductor": 1}


def test_another_form_of_batch_is_told_once_and_trained(recommend):
    step, _model, _optimizer = prepared(recommend("mlp", TRACED), "mlp")
    batches = batches_of("mlp", 4)
    parts = [tuple(tensor[:count] for tensor in batch) for batch, count in zip(batches, (32, 7, 7, 5), strict=True)]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        losses = [step(batch).item() for batch in parts]
    (message,) = [str(one.message) for one in told if "tuned with" in str(one.message)]
    assert "float32 of shape (7, 10), was float32 of shape (32, 10)" in message
    assert message in step.status.notes
    assert step.status.steps == {"inductor": 4}
    own = model_of("mlp")
    optimizer = adamw(own.parameters())
    for batch, loss in zip(parts, losses, strict=True):
        optimizer.zero_grad()
        value = LEARNERS["mlp"].loss(own, batch)
        value.backward()
        optimizer.step()
        assert loss == pytest.approx(value.item(), rel=1e-4)


def test_a_loop_that_begins_with_too_few_batches_is_warned(recommend):
    directory = recommend("mlp", Plan(), accumulate=2)
    batches = batches_of("mlp", 4)
    step, _model, _optimizer = prepared(directory, "mlp")
    with pytest.warns(RuntimeWarning, match="the first step got 1 batch, but 2 were tuned"):
        step(batches[0])
    assert len(step.status.notes) == 1
    step(batches[1])
    assert len(step.status.notes) == 1
    other, _model, _optimizer = prepared(directory, "mlp")
    other(*batches[:2])
    other(batches[2])
    assert other.status.notes == ()


def test_the_last_step_may_have_fewer_batches_and_none_more(recommend):
    step, _model, _optimizer = prepared(recommend("mlp", Plan(), accumulate=3), "mlp")
    one, two, three = batches_of("mlp", 3)
    own, *_rest = by_hand("mlp")
    with pytest.warns(RuntimeWarning, match="the first step got 1 batch, but 3 were tuned"):
        assert step(one).item() == own[0]
    step(two, three)
    for given in ((), (one, two, three, one)):
        with pytest.raises(UsageError, match=f"1 to 3 batches, but {len(given)} were given"):
            step(*given)
    single, _model, _optimizer = prepared(recommend("mlp", Plan()), "mlp")
    with pytest.raises(UsageError, match="one batch, but 2 were given; give a batch of several parts as one tuple"):
        single(*one)


def test_a_mode_that_the_user_changes_is_followed(recommend):
    step, model, _optimizer = prepared(recommend("cnn", TRACED), "cnn")
    batch = batches_of("cnn", 1)[0]
    step(batch)
    mean = model[1].running_mean.clone()
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(step.model(batch[0]), model(batch[0]), rtol=1e-4, atol=1e-5)
    assert torch.equal(model[1].running_mean, mean)
    model.train()
    step(batch)
    assert not torch.equal(model[1].running_mean, mean)


def test_what_is_wrong_with_what_was_given_is_one_line(recommend):
    directory = recommend("mlp", Plan())
    model = model_of("mlp")
    optimizer = adamw(model.parameters())
    loss = LEARNERS["mlp"].loss
    with pytest.raises(UsageError, match="prepare: the loss is missing; pass loss="):
        autocompile.prepare(directory, model, optimizer)
    with pytest.raises(UsageError, match="a function cannot be trained"):
        autocompile.prepare(directory, loss, optimizer, loss=loss)
    with pytest.raises(UsageError, match="a list is not an optimizer"):
        autocompile.prepare(directory, model, list(model.parameters()), loss=loss)
    with pytest.raises(UsageError, match="a str is not a loss function"):
        autocompile.prepare(directory, model, optimizer, loss="mse")
    with pytest.raises(InvalidWorkload, match="optimizer: holds none of the model's parameters"):
        autocompile.prepare(directory, model, adamw(model_of("mlp").parameters()), loss=loss)
    with pytest.raises(UsageError, match="on_mismatch: 'ignore' is unknown"):
        autocompile.prepare(directory, model, optimizer, loss=loss, on_mismatch="ignore")
    step = autocompile.prepare(directory, model, optimizer, loss=lambda model, batch: model(batch[0]))
    with pytest.raises(InvalidWorkload, match="not a scalar"):
        step(*batches_of("mlp", 1))


def test_each_kind_of_recommendation_names_the_others_door(recommend):
    called = recommend("mlp", Plan(), training=None)
    with pytest.raises(InvalidRecommendation, match=r"not for training; call autocompile\.load"):
        prepared(called, "mlp")
    with pytest.raises(InvalidRecommendation, match=r"is for training.*call autocompile\.prepare"):
        autocompile.load(recommend("mlp", Plan()), model_of("mlp"))


def test_its_digest_can_be_pinned(recommend):
    directory = recommend("mlp", Plan())
    prepared(directory, "mlp", digest=manifest_digest(directory))
    with pytest.raises(InvalidArtifact, match="has digest"):
        prepared(directory, "mlp", digest="sha256:" + "0" * 64)


def test_threads_are_the_plans(recommend):
    prepared(recommend("mlp", Plan(threads=2)), "mlp")
    assert torch.get_num_threads() == 2


RESTARTED = """
import json, sys
import torch
import autocompile
from learners import LEARNERS, adamw

torch.set_num_threads(1)
torch.manual_seed(0)
model = LEARNERS["mlp"].model().train()
step = autocompile.prepare(sys.argv[1], model, adamw(model.parameters()), loss=LEARNERS["mlp"].loss)
torch.manual_seed(1)
step(LEARNERS["mlp"].batch())
status = step.status
print(json.dumps([status.start, status.cache.hits, status.cache.misses, len(status.fallbacks), *status.notes]))
"""


def test_a_restarted_job_starts_from_the_cache_that_came_along(laboratory, recommend, tmp_path):
    plan = replace(compiled(), autocast="bfloat16", optimizer="fused")
    model = model_of("mlp", dropout=True)
    laboratory.spool(model, batches_of("mlp", 2), training=Training(optimizer=adamw, loss=LEARNERS["mlp"].loss))
    packed = laboratory.pack(plan, CARRIED)
    cached = open_manifest(packed)
    bare = open_manifest(recommend("mlp", plan))
    told = replace(bare, identity=identity_of(model), files=cached.files, requirements=cached.requirements)
    write_manifest(packed, told)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "tests" / "real")]),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "fresh"),
    }
    ran = subprocess.run(
        [sys.executable, "-c", RESTARTED, str(packed)],
        capture_output=True, text=True, env=environment, check=False, timeout=200,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    start, hits, misses, fallbacks, *notes = json.loads(ran.stdout)
    assert (start, misses, fallbacks) == ("cache", 0, 0)
    assert hits > 0
    assert notes == ["starts the compiler at the first step, with the packed compiler cache"]


def test_a_cache_of_another_torch_is_left_where_it_is(recommend, monkeypatch):
    here = requirements("inductor", with_python=True, device_type="cpu")
    directory = recommend("mlp", compiled(), requirements=replace(here, torch="1.0"))
    (directory / "packed-0").mkdir()
    (directory / "packed-0" / "entry").write_bytes(b"of another compiler")
    manifest = open_manifest(directory)
    write_manifest(directory, replace(manifest, files=(entry_for(directory, "packed-0/entry"),)))
    monkeypatch.setattr(InductorRuntime, "install_cache", lambda _self, files: pytest.fail(f"it installed {files}"))
    with pytest.warns(RuntimeWarning, match=r"packed with torch 1\.0"):
        step, _model, _optimizer = prepared(directory, "mlp")
    assert step.status.start == "compile"
    assert step.status.cache is None
