"""Models that keep something from their first call: what is packed, and when it is served."""

import copy

import pytest
import torch
from torch import nn

import autocompile
from autocompile.core.outcome import Failure
from autocompile.core.plan import Plan
from autocompile.core.serving import Serving
from autocompile.runtime.base import NotPackable
from autocompile.runtime.catalogue import kind_of
from autocompile.runtime.inductor.settings import compiled
from autocompile.trial.pack.first_call import FirstCall
from autocompile.workload.axes import FreeAxis
from autocompile.workload.call import Call
from autocompile.workload.samples import Sample

X = torch.randn(3, 5, 4)


class Positions(nn.Module):
    """Adds positions from a table, made when it is needed and as long as was needed so far."""

    def __init__(self):
        super().__init__()
        self.layer, self.length, self.table = nn.Linear(4, 4), 0, []

    def forward(self, x):
        if x.shape[1] > self.length:
            self.length = x.shape[1]
            self.table = [torch.arange(self.length).float()]
        return self.layer(x) + self.table[0][: x.shape[1], None]


class Masked(nn.Module):
    """Keeps a mask of the length of the last call."""

    def __init__(self):
        super().__init__()
        self.layer, self.mask = nn.Linear(4, 4), None

    def forward(self, x):
        if self.mask is None or len(self.mask) != x.shape[1]:
            self.mask = torch.arange(x.shape[1]).float()[:, None]
        return self.layer(x) * self.mask


class Buffered(Masked):
    """Keeps the mask as a buffer."""

    def __init__(self):
        super().__init__()
        del self.mask
        self.register_buffer("mask", None, persistent=False)


class Filled(nn.Module):
    """Fills a buffer when it is first called."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.zeros(5, 1))
        self.is_filled = False

    def forward(self, x):
        if not self.is_filled:
            self.table.copy_(torch.arange(5.0)[:, None])
            self.is_filled = True
        return x + self.table


class FirstLength(nn.Module):
    """Multiplies by the length of the first call."""

    def __init__(self):
        super().__init__()
        self.layer, self.length = nn.Linear(4, 4), None

    def forward(self, x):
        if self.length is None:
            self.length = x.shape[1]
        return self.layer(x) * self.length


class FirstMean(nn.Module):
    """Subtracts the mean of the first call."""

    def __init__(self):
        super().__init__()
        self.mean = None

    def forward(self, x):
        if self.mean is None:
            self.mean = x.mean()
        return x - self.mean


class FirstMask(nn.Module):
    """Fits only calls of the first call's length."""

    def __init__(self):
        super().__init__()
        self.known = {}

    def forward(self, x):
        mask = self.known.setdefault("mask", torch.ones(x.shape[1], 1))
        return x * mask


def checked(model, *axes):
    call = Call(model)
    first = FirstCall(call)
    call.run(Sample((X,), {}))
    return first.check(Sample((X,), {}), axes)


def test_what_changes_no_result_is_kept_with_both_texts():
    assert checked(nn.Linear(4, 4)) == {}
    assert checked(Masked()) == {"mask": ["None", ""]}
    assert checked(Buffered()) == {"mask": ["None", ""]}
    assert checked(Positions()) == {"length": ["0", "5"], "table": ["[]", "[Tensor]"]}


@pytest.mark.parametrize(
    ("model", "name"), [(FirstLength, "length"), (FirstMean, "mean"), (FirstMask, "known")], ids=str
)
def test_what_later_results_depend_on_is_refused(model, name):
    with pytest.raises(NotPackable, match=f"sets its attribute `{name}` when it is first called.* depend on that call"):
        checked(model())


def test_a_buffer_that_a_first_call_fills_is_refused():
    with pytest.raises(NotPackable, match="it writes into its buffer table when it is first called"):
        checked(Filled())


def test_ends_of_an_axis_that_varies_count_as_first_calls():
    class Long(FirstLength):
        def forward(self, x):
            self.length = self.length or x.shape[1] >= 60
            return self.layer(x) + (2 if self.length else 1)

    assert set(checked(Long())) == {"length"}
    with pytest.raises(NotPackable, match="depend on that call"):
        checked(Long(), FreeAxis("n", frozenset({(0, 1)}), (5,), 2, 64))


def test_a_model_that_cannot_be_copied_is_refused_if_it_keeps_something():
    class Alone(Positions):
        def __deepcopy__(self, memo):
            raise TypeError("only one")

    with pytest.raises(NotPackable, match="sets its attribute `length` when it is first called, and not before"):
        checked(Alone())


def test_a_fresh_model_is_served_and_stays_served_after_calls_of_other_sizes(laboratory):
    model = Positions().eval()
    laboratory.prepare(copy.deepcopy(model), X, preload=True)
    artifact = laboratory.pack(compiled())
    assert not isinstance(artifact, Failure), artifact
    module = autocompile.load(artifact, model)
    longer = torch.randn(3, 7, 4)
    for x in (X, longer, X):  # the longer call is served eager, and sets the model's attributes
        torch.testing.assert_close(module(x), Positions.forward(model, x))
    assert module.status.calls == {"aot": 2, "eager": 1}
    model.length = 3  # as nobody but a user would set it
    module(X)
    assert module.status.fallbacks[-1].reason == "attribute `length` is 3, was 0 or 5 or 7"


@pytest.mark.parametrize("make", [Masked, Buffered])
@pytest.mark.parametrize("runtime", ["aot", "openvino", "onnxruntime"])
def test_a_mask_that_was_kept_is_a_constant_of_the_program(laboratory, runtime, make):
    kind_of(Plan(runtime)).library and pytest.importorskip(kind_of(Plan(runtime)).library)
    model = make().eval()
    laboratory.prepare(copy.deepcopy(model), X, preload=True)
    artifact = laboratory.pack(Plan(runtime) if runtime != "aot" else compiled(), Serving(runtime, "load"))
    assert not isinstance(artifact, Failure), artifact
    module = autocompile.load(artifact, model)
    for x in (X, X[:, :2], X):  # the shorter call is served eager, and sets the model's mask
        torch.testing.assert_close(module(x), Masked.forward(model, x), rtol=1e-4, atol=1e-5)
    assert module.status.calls == {runtime: 2, "eager": 1}
    with torch.no_grad():
        model.layer.weight.mul_(2)
    torch.testing.assert_close(module(X), model(X), rtol=1e-4, atol=1e-5)


def test_a_model_that_was_set_otherwise_is_not_served(laboratory):
    model = Positions().eval()
    laboratory.prepare(copy.deepcopy(model), X, preload=True)
    artifact = laboratory.pack(compiled())
    model.length, model.table = 9, [torch.zeros(9)]
    with pytest.warns(RuntimeWarning, match="attribute `length` is 9, was 0 or 5"):
        module = autocompile.load(artifact, model)
    torch.testing.assert_close(module(X), model(X))
    assert module.status.calls == {"eager": 1}
