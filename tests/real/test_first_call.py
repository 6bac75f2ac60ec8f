"""Models that keep something from their first call, which later calls read: no program is packed of them."""

from functools import cached_property

import pytest
import torch
from torch import nn

from autocompile.core.identity import differences, summary
from autocompile.core.outcome import Failure
from autocompile.runtime.inductor.settings import compiled
from autocompile.trial.pack.first_call import FirstCall
from autocompile.workload.identity.code import code_of
from autocompile.workload.identity.facts import identity_like, identity_of
from autocompile.workload.identity.state import state_texts

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
    assert "`kept` when it is first called, and not before; if later calls do" in trace(Keeping(make, buffer=buffer))


def test_a_plain_value_and_a_new_attribute_are_found():
    assert trace(Keeping(lambda _self, x: x.shape[1])) == (
        "it sets its attribute `kept` when it is first called, and not before; "
        "if later calls do not change it, call the model once before tuning, and once before `load`"
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


SCALE = None
KEPT = {}


def in_a_global(x):
    global SCALE  # noqa: PLW0603
    if SCALE is None:
        SCALE = float(x.max())
    return x * SCALE


def a_tensor_in_a_global(x):
    global SCALE  # noqa: PLW0603
    if SCALE is None:
        SCALE = x.mean()
    return x * SCALE


def in_a_dictionary(x):
    if "scale" not in KEPT:
        KEPT["scale"] = float(x.max())
    return x * KEPT["scale"]


def in_a_function(x):
    if not hasattr(in_a_function, "scale"):
        in_a_function.scale = float(x.max())
    return x * in_a_function.scale


class Holder:
    scale = None


def in_a_class(x):
    if Holder.scale is None:
        Holder.scale = x.mean()
    return x * Holder.scale


class Slots:
    __slots__ = ("scale",)


SLOTS, HELD = Slots(), Holder()


def in_slots(x):
    if not hasattr(SLOTS, "scale"):
        SLOTS.scale = float(x.max())
    return x * SLOTS.scale


def in_an_object(x):
    if HELD.scale is None:
        HELD.scale = float(x.max())
    return x * HELD.scale


def closing():
    scale = None

    def in_a_closure(x):
        nonlocal scale
        if scale is None:
            scale = float(x.max())
        return x * scale

    return in_a_closure


class Through(nn.Module):
    """Calls a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class OnItsClass(nn.Module):
    table = None

    def forward(self, x):
        if self.table is None:
            type(self).table = torch.ones(4)
        return x + self.table


class WithSlots(nn.Module):
    def __init__(self):
        super().__init__()
        self.held = Slots()

    def forward(self, x):
        return in_slots(x) if self.held is SLOTS else self.scaled(x)

    def scaled(self, x):
        if not hasattr(self.held, "scale"):
            self.held.scale = float(x.max())
        return x * self.held.scale


@pytest.fixture
def nothing_kept():
    """Each test finds the state of this file as it was."""

    def forget():
        global SCALE
        SCALE, Holder.scale, OnItsClass.table, HELD.scale = None, None, None, None
        KEPT.clear()
        vars(in_a_function).pop("scale", None)
        if hasattr(SLOTS, "scale"):
            del SLOTS.scale

    forget()
    yield
    forget()


@pytest.mark.usefixtures("nothing_kept")
@pytest.mark.parametrize(
    ("model", "said"),
    [
        (in_a_global, "the variable `SCALE` of `in_a_global`"),
        (a_tensor_in_a_global, "the variable `SCALE` of `a_tensor_in_a_global`"),
        (Through(in_a_global), "the variable `SCALE` of `in_a_global`"),
        (closing(), "the variable `scale` of `closing.<locals>.in_a_closure`"),
        (in_a_dictionary, "the variable `KEPT` of `in_a_dictionary`"),
        (in_a_function, "`in_a_function.scale`"),
        (in_a_class, "`Holder.scale`"),
        (in_an_object, "`HELD.scale`"),
        (in_slots, "`SLOTS.scale`"),
        (OnItsClass(), "`OnItsClass.table`"),
        (WithSlots(), "`WithSlots.held.scale`"),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__) if not isinstance(value, str) else "",
)
def test_what_is_set_outside_of_modules_is_found(model, said):
    assert trace(model).startswith(f"it sets {said} when it is first called, and not before; ")


TABLE = torch.zeros(4)


def test_a_write_into_a_global_is_found():
    def writing(x):
        return x + TABLE.add_(1)

    assert trace(writing) == (
        "it writes into test_a_write_into_a_global_is_found.<locals>.writing(TABLE) when it is first called"
    )


LAST = None


def test_variables_that_are_only_written_do_not_matter():
    def writing(x):
        global LAST  # noqa: PLW0603
        LAST = Holder.last = x * 2
        return x

    assert trace(writing) == ""


@pytest.mark.usefixtures("nothing_kept")
@pytest.mark.parametrize("model", [in_a_global, in_a_class, in_slots], ids=lambda value: value.__name__)
def test_a_plain_value_that_was_set_before_must_be_there_in_production(model):
    in_a_global(X), in_slots(X)
    Holder.scale = 2.0
    recorded = identity_of(model)
    assert identity_of(model).digest == recorded.digest
    recorded = type(recorded)(**{**vars_of(recorded), "state": state_texts(code_of(model))})
    assert differences(recorded, identity_like(model, recorded)) == []
    globals()["SCALE"] = Holder.scale = SLOTS.scale = 0.5
    assert identity_of(model).digest == recorded.digest
    told = summary(differences(recorded, identity_like(model, recorded)))
    assert "is 0.5, was " in told
    assert differences(recorded, identity_like(model, recorded))[0].kind == "attributes"


def vars_of(record):
    return {name: getattr(record, name) for name in record.__struct_fields__}


def one(_module, x):
    return torch.ones(x.shape[-1])
