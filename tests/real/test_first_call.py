"""Models that keep something from their first call, which later calls read: no program is packed of them."""

from functools import cached_property

import pytest
import torch
from torch import nn

from autocompile.core.outcome import Failure
from autocompile.runtime.inductor.settings import compiled
from autocompile.trial.pack.first_call import FirstCall

X = torch.randn(3, 5, 4)


class Keeping(nn.Module):
    """Sets `kept` by `make(self, x)` when it is first called, and adds it to each result."""

    def __init__(self, make, before=None, *, buffer=False):
        super().__init__()
        self.layer, self.make = nn.Linear(4, 4), make
        if buffer:
            self.register_buffer("kept", before)
        else:
            self.kept = before

    def forward(self, x):
        if self.kept is None:
            self.kept = self.make(self, x)
        return self.layer(x) + self.kept


class New(nn.Module):
    """Makes the attribute itself at its first call."""

    def forward(self, x):
        if not hasattr(self, "table"):
            self.table = torch.ones(4)
        return x + self.table


class Filled(nn.Module):
    """Fills a buffer or scales a parameter when it is first called."""

    def __init__(self, name):
        super().__init__()
        self.register_buffer("table", torch.zeros(4))
        self.weight, self.plain = nn.Parameter(torch.ones(4)), torch.zeros(4)
        self.name, self.state = name, [False]

    def forward(self, x):
        if not self.state[0]:
            with torch.no_grad():
                getattr(self, self.name).add_(1)
            self.state[0] = True
        return x + self.table + self.weight + self.plain


class Recording(nn.Module):
    """Keeps its last results, which nothing reads."""

    def __init__(self):
        super().__init__()
        self.layer, self.last = nn.Linear(4, 4), None

    def forward(self, x):
        self.last = y = self.layer(x)
        self.latest = y * 2
        return y


def trace(model):
    first = FirstCall(model)
    first.begin()
    with torch.no_grad():
        model(X)
    return first.written() or first.trace()


@pytest.mark.parametrize("buffer", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda _self, x: x.mean(),
        lambda self, _x: self.layer.weight.sum().detach(),
        lambda _self, x: torch.arange(x.shape[-1]),
    ],
    ids=["values", "weights", "sizes"],
)
def test_a_tensor_that_is_kept_is_found(make, buffer):
    assert trace(Keeping(make, buffer=buffer)).endswith("`kept` when it is first called, and not before")


def test_a_plain_value_and_a_new_attribute_are_found():
    assert trace(Keeping(lambda _self, x: x.shape[1])) == (
        "it sets its attribute `kept` when it is first called, and not before"
    )
    assert "`table` when it is first called" in trace(New())


@pytest.mark.parametrize("name", ["table", "weight", "plain"])
def test_what_is_written_into_is_found(name):
    model = Filled(name)
    first = FirstCall(model)
    first.begin()
    model(X)
    model.state[0] = False  # only the tensor is left to show it
    assert first.written() == f"it writes into {name} when it is first called"


def test_what_nothing_reads_does_not_matter():
    assert trace(Recording()) == ""
    assert trace(nn.Linear(4, 4)) == ""
    assert trace(Keeping(None, 1.0)) == ""


def test_tensors_without_memory_of_their_own_are_left_out():
    model = nn.Linear(4, 4)
    model.register_buffer("sparse", torch.eye(3).to_sparse())
    model.register_buffer("small", torch.ones(3).to(torch.float8_e4m3fn))
    assert trace(model) == ""


class Cached(nn.Module):
    @cached_property
    def scale(self):
        return 0.5

    def forward(self, x):
        return x * self.scale


def test_cached_properties_and_weights_that_only_move_do_not_matter():
    assert trace(Cached()) == ""
    model = nn.Linear(4, 4)
    first = FirstCall(model)
    first.begin()
    model.weight.data = model.weight.data.clone()
    assert first.written() == ""
    model.weight.data = model.weight.data * 2
    assert first.written() == "it writes into weight when it is first called"


class Normed(nn.Module):
    """Has buffers, and is called in two forms."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x, y=None):
        return self.norm(x) if y is None else self.norm(x + y)


def test_a_model_with_buffers_is_packed_in_two_forms(laboratory):
    x = torch.randn(3, 4)
    laboratory.prepare(Normed().eval(), [(x,), (x, x)], preload=True)
    packed = laboratory.pack(compiled())
    assert not isinstance(packed, Failure), packed


class Growing(nn.Module):
    """Divides by the greatest length so far, if that is more than in the sample."""

    def __init__(self):
        super().__init__()
        self.most = 3

    def forward(self, x):
        self.most = max(self.most, x.shape[0])
        return x / self.most


def test_what_calls_of_other_sizes_set_is_found(laboratory):
    laboratory.prepare(Growing().eval(), [torch.randn(2, 4), torch.randn(3, 4)], preload=True)
    failure = laboratory.pack(compiled())
    assert isinstance(failure, Failure)
    assert "`most` when it is first called" in failure.message


def test_such_a_model_is_not_packed(laboratory):
    laboratory.prepare(Keeping(one).eval(), X, preload=True)
    failure = laboratory.pack(compiled())
    assert isinstance(failure, Failure)
    assert "`kept` when it is first called, and not before" in failure.message


def one(_module, x):
    return torch.ones(x.shape[-1])
