"""Programs with copies of the weights: every visible change is detected, and equal values are served again."""

import copy
import threading
import time

import pytest
import torch
from torch import nn

from autocompile.artifact.serving import Holding, Ready, Tally
from autocompile.core.plan import Plan
from autocompile.core.serving import Serving
from autocompile.runtime import records
from autocompile.runtime.base import WeightsDiffer
from autocompile.runtime.building import build
from autocompile.runtime.held_tensors import HeldTensors
from autocompile.runtime.model_watch import Watch
from autocompile.runtime.weights import UNREADABLE, Weights, difference, digests
from autocompile.workload.call import Call


class Held(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
        self.scale = torch.tensor(2.0)

    def forward(self, x):
        return self.layers(x) * self.scale


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Held().eval()


def read(model, **how):
    """The digests of a model's tensors."""
    return digests(HeldTensors(model).named(), **how)


def stepped(optimizer, **settings):
    def change(model):
        chosen = optimizer(model.parameters(), lr=0.1, **settings)
        model(torch.randn(3, 4)).sum().backward()
        chosen.step()

    change.__name__ = f"{optimizer.__name__} {' '.join(settings)}"
    return change


def loaded(model):
    other = copy.deepcopy(model)
    nn.init.ones_(other.layers[2].weight)
    model.load_state_dict(other.state_dict())


def in_place(model):
    with torch.no_grad():
        model.layers[0].weight.mul_(2)


def of_another_type(model):
    model.double()


def other_memory(model):
    model.layers[2].bias.data = model.layers[2].bias.data + 1


def another_parameter(model):
    model.layers[0].weight = nn.Parameter(torch.ones(4, 4))


def moving_average(model):
    for parameter in model.parameters():
        parameter.data.mul_(0.9).add_(0.05)


def merged_adapter(model):
    model.layers[0].weight.data += torch.full((), 0.01)


def through_numpy(model):
    model.layers[0].weight.detach().numpy()[:] *= 2


def swapped(model):
    torch.utils.swap_tensors(model.layers[0].weight, nn.Parameter(torch.ones(4, 4)))


def one_element(model):
    with torch.no_grad():
        model.layers[0].weight[0, 0] += 1


def transposed(model):
    model.layers[0].weight.data = model.layers[0].weight.data.t()


def a_buffer(model):
    model.layers[1].running_mean.add_(1)


def a_plain_attribute(model):
    model.scale = torch.tensor(3.0)


def trained(model):
    model.train()
    model(torch.randn(8, 4))
    model.eval()


CHANGES = [
    stepped(torch.optim.SGD), stepped(torch.optim.SGD, foreach=True), stepped(torch.optim.Adam, foreach=True),
    stepped(torch.optim.AdamW, fused=True), loaded, in_place, of_another_type, other_memory, another_parameter,
    moving_average, merged_adapter, through_numpy, swapped, one_element, transposed, a_buffer,
    a_plain_attribute, trained,
]  # fmt: skip


BEHIND_TORCH = (moving_average, merged_adapter, through_numpy)


@pytest.fixture(params=["records", "python"])
def asked(request, monkeypatch):
    """Both ways to ask whether something was written: torch's records, and where these are not found, Python."""
    if request.param == "python":
        monkeypatch.setattr("autocompile.runtime.records._layout", lambda: None)
    elif records._layout() is None:
        pytest.skip("torch's records are not found here")
    return request.param


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_every_change_is_seen_and_its_undoing_too(model, asked, change, monkeypatch):
    if change not in BEHIND_TORCH:  # what torch counts is seen without looking at elements
        monkeypatch.setattr("autocompile.runtime.unwritten.witnesses", lambda _tensors: [])
    weights = Weights(model, read(model), Watch(model, ()))
    assert weights.difference() == ""
    from_records = asked == "records"
    assert isinstance(weights._look._unwritten._looks[0], records.Words) == from_records
    run = weights.holding(lambda tensors: tensors)
    before = copy.deepcopy(model)
    assert run([]) == []
    change(model)
    weights.watch.changed()
    with pytest.raises(WeightsDiffer, match="the weights are not those that were packed: "):
        run([])
    model.float()
    model.scale = before.scale
    model.layers[0].weight = nn.Parameter(before.layers[0].weight.detach())
    model.load_state_dict(before.state_dict())
    weights.watch.changed()
    assert run([]) == []


def test_a_sample_tells_other_weights_and_after_a_change_all_is_compared(model):
    packed, samples = read(model), read(model, sampled=True)
    assert Weights(model, packed, Watch(model, ()), samples).difference() == ""
    wide = nn.Linear(256, 256)
    known, sampled = read(wide), read(wide, sampled=True)
    between = 300  # of 256 KiB, of which the first 256 bytes are a piece of the sample and the next begins at 17 KB
    with torch.no_grad():
        wide.weight.view(-1)[between] += 1
    weights = Weights(wide, known, Watch(wide, ()), sampled)
    assert weights.difference() == ""
    with torch.no_grad():
        wide.bias += 0
    weights.watch.changed()
    assert "weight differs" in weights.difference()
    tuned = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in tuned.parameters():
            parameter.mul_(1.01)
    assert "differs" in Weights(tuned, packed, Watch(tuned, ()), samples).difference()


def test_a_thread_compares_and_the_caller_waits_for_it(model, monkeypatch):
    packed, own, asked = read(model), digests, threading.Event()
    threads = []

    def slow(*given, **named):
        threads.append(threading.current_thread())
        assert asked.wait(60)
        return own(*given, **named)

    weights = Weights(model, packed, Watch(model, ()))
    monkeypatch.setattr("autocompile.runtime.weights.digests", slow)
    weights.begin()
    while not threads:
        time.sleep(0.001)
    threading.Timer(0.05, asked.set).start()
    assert weights.difference() == ""
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()


def test_what_a_thread_could_not_compare_is_compared_in_the_same_way_later(model, monkeypatch):
    packed, samples, own, asked = read(model), read(model, sampled=True), digests, []

    def failing_once(*given, **named):
        asked.append(named)
        if len(asked) == 1:
            raise MemoryError
        return own(*given, **named)

    weights = Weights(model, packed, Watch(model, ()), samples)
    monkeypatch.setattr("autocompile.runtime.weights.digests", failing_once)
    weights._compare()
    assert weights.difference() == ""
    assert asked == [{"sampled": True}, {"sampled": True}]


def test_nothing_is_read_again_while_nothing_changes(model, monkeypatch):
    weights = Weights(model, read(model), Watch(model, ()))
    assert weights.difference() == ""
    monkeypatch.setattr("autocompile.runtime.weights.digests", None)
    for mode in (False, True):
        with torch.inference_mode(mode):
            model(torch.randn(2, 4))
            assert weights.watch.changed() == ""
            assert weights.difference() == ""
    model.note = "of no weight"
    assert weights.watch.changed() == ""
    assert weights.difference() == ""


def test_what_was_built_unpacked_serves_while_the_weights_are_the_same(model):
    eager = Ready(build(Call(model), Plan()), Tally())
    tally = Tally()
    copied = Ready(build(Call(copy.deepcopy(model)), Plan()), tally, Serving("copied", "none"), "a copy")
    held = Holding(copied, eager, Weights(model, None, Watch(model, ())), tally)
    assert (held.serving.runtime, held.label) == ("copied", "a copy")
    x = torch.randn(2, 4)
    for change in (lambda _model: None, in_place, loaded):
        change(model)
        torch.testing.assert_close(held((x,), {}), model(x).detach())
    model.layers[0] = nn.Identity()
    torch.testing.assert_close(held((x,), {}), model(x).detach())
    assert tally.calls == {"copied": 1}
    assert [count for _message, count in tally.refusals] == [2, 1]


def test_in_another_memory_format_only_what_is_copied_counts():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    model.scale = torch.ones(2)
    x = torch.randn(2, 3, 8, 8)

    def same():
        weights = Weights(model, None, Watch(model, ()), only_images=True)
        yield weights.difference()
        yield weights.difference()

    with torch.no_grad():
        for change, copied in (
            (lambda: model.train()(x), False),  # writes the batch statistics
            (lambda: model[0].bias.mul_(2), False),
            (lambda: model[0].weight.mul_(2), True),
            (lambda: model.scale.mul_(2), True),
        ):
            looks = same()
            assert next(looks) == ""
            change()
            assert bool(next(looks)) == copied


def test_what_differs_is_named(model):
    packed = read(model)
    assert difference(packed, read(copy.deepcopy(model))) == ""
    in_place(model)
    other = read(model)
    assert difference(packed, other).endswith("were packed: layers.0.weight differs")
    assert difference(packed, {**other, "layers.2.bias": "x"}).endswith("layers.0.weight differs, and 1 more")
    assert difference({}, {"a": "x"}).endswith("there was no a")
    assert difference({"a": "x"}, {}).endswith("there is no a")
    assert difference({"a": UNREADABLE}, {"a": UNREADABLE}).endswith("a differs")


def test_digests_tell_types_shapes_and_values_apart():
    def digest(tensor):
        holder = nn.Module()
        holder.register_buffer("held", tensor)
        return read(holder)["held"]

    tensors = [
        torch.zeros(4), torch.zeros(2, 2), torch.zeros(4, dtype=torch.int32), torch.zeros(0), torch.tensor(0.0),
        torch.zeros(8, dtype=torch.bfloat16), torch.zeros(4, dtype=torch.bool), torch.zeros(4, dtype=torch.complex64),
        -torch.zeros(4), torch.ones(4), torch.eye(3).to_sparse(),
    ]  # fmt: skip
    assert UNREADABLE not in map(read, tensors)
    assert len(set(map(digest, tensors))) == len(tensors)
    image = torch.randn(1, 3, 4, 4)
    assert digest(image) == digest(image.to(memory_format=torch.channels_last))
    assert digest(torch.zeros(2, device="meta")) == UNREADABLE


def test_tied_and_inference_tensors_are_read(model):
    model.layers[2].weight = model.layers[0].weight
    with torch.inference_mode():
        model.layers[1].running_var = torch.ones(4)
    weights = Weights(model, read(model), Watch(model, ()))
    assert weights.difference() == ""
    in_place(model)
    assert "layers.0.weight differs, and 1 more" in weights.difference()


SCALE = torch.ones(3)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        shift = torch.ones(3)
        self.shifted = lambda x: x + shift

    def forward(self, x):
        return self.shifted(x) * SCALE


def test_changes_of_globals_and_closures_are_seen(monkeypatch):
    model = Scaled()
    packed = read(model)
    closed, scale = sorted(packed)
    assert closed.endswith("(shift)")
    assert scale == "Scaled.forward(SCALE)"
    weights = Weights(model, packed, Watch(model, ()))
    assert weights.difference() == ""
    SCALE.mul_(2)
    assert "Scaled.forward(SCALE) differs" in weights.difference()
    SCALE.div_(2)
    assert weights.difference() == ""
    monkeypatch.setitem(globals(), "SCALE", torch.zeros(3))
    assert "Scaled.forward(SCALE) differs" in weights.difference()


def test_variables_of_functions_of_one_name_are_found_again_among_what_was_packed():
    def scaled(scale):
        return lambda x: x * scale

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = scaled(torch.ones(3)), scaled(torch.zeros(3))

        def forward(self, x):
            return self.second(self.first(x))

    named = HeldTensors(Both()).named()
    assert len(named) == 2
    assert HeldTensors(Both(), packed=["f#2(SCALE)"]).named().keys() == named.keys()
    assert HeldTensors(Both(), packed=["f(scale)#1"]).named().keys() == named.keys()
    assert HeldTensors(Both(), packed=["weight"]).named() == {}
