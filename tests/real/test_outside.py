"""Values outside of a model's modules that change after the model was loaded: no call gets a stale answer."""

from collections import deque
from types import SimpleNamespace

import numpy as np
import outside_values
import pytest
import torch
from msgspec import structs
from torch import nn

import autocompile
from autocompile.core.identity import differences
from autocompile.core.outcome import Failure
from autocompile.runtime.inductor.settings import compiled
from autocompile.runtime.model_watch import Watch
from autocompile.runtime.outside import Outside
from autocompile.workload.identity.code import code_of
from autocompile.workload.identity.facts import identity_like, identity_of
from autocompile.workload.identity.state import state_texts

SCALE, SIZES, TABLE = 2.0, [1, 2], {"offset": 1.0}
X = torch.randn(3, 4)


class Settings:
    __slots__ = ("shift",)

    def __init__(self):
        self.shift = 1.0


class Config:
    power = 1.0

    def __init__(self):
        self.gain = 2.0


SETTINGS, CONFIG = Settings(), Config()


def doubled(x):
    return x * 2


def halved(x):
    return x / 2


def times(number):
    return lambda x: x * number


def doubled_again(x):
    return x * 2


doubled_again.__name__ = doubled_again.__qualname__ = "doubled"
doubled_again.__code__ = doubled.__code__
helper, scaled = doubled, times(3.0)


class Net(nn.Module):
    limit = 5.0

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        x = helper(self.layer(x)) * SCALE + SETTINGS.shift + CONFIG.gain + Config.power
        return scaled(x * sum(SIZES) + TABLE["offset"]).clamp(max=self.limit)


# What is replaced: the object that holds it, its name, another value, and how the change is called.
CHANGES = [
    (globals(), "SCALE", 3.0, "the variable `SCALE` of `Net.forward` is 3.0, was 2.0"),
    (globals(), "helper", halved, "the variable `helper` of `Net.forward` is function halved, was function doubled"),
    (globals(), "SIZES", [1, 3], "the variable `SIZES` of `Net.forward` is [1, 3], was [1, 2]"),
    (SIZES, 0, 5, "the variable `SIZES` of `Net.forward` is [5, 2], was [1, 2]"),
    (TABLE, "offset", 3.0, "the variable `TABLE` of `Net.forward` is {'offset': 3.0}, was {'offset': 1.0}"),
    (SETTINGS, "shift", 0.5, "`SETTINGS.shift` is 0.5, was 1.0"),
    (CONFIG, "gain", 0.5, "`CONFIG.gain` is 0.5, was 2.0"),
    (Config, "power", 0.5, "`Config.power` is 0.5, was 1.0"),
    (Net, "limit", 0.5, "`Net.limit` is 0.5, was 5.0"),
    (scaled.__closure__[0], "cell_contents", 0.5, "the variable `number` of `times.<locals>.<lambda>` is 0.5, was 3.0"),
]
EQUAL = [
    (globals(), "SCALE", float("2")),
    (globals(), "helper", doubled_again),
    (globals(), "SIZES", [1, 2]),
    (globals(), "TABLE", {"offset": 1.0}),
    (globals(), "UNREAD", 1.0),
]


def put(holder, name, value):
    """Set an item or an attribute, and return the value before."""
    if isinstance(holder, dict | list | deque | np.ndarray):
        before = holder.get(name) if isinstance(holder, dict) else holder[name]
        holder[name] = value
    else:
        before = getattr(holder, name)
        setattr(holder, name, value)
    return before


def test_no_call_gets_a_stale_answer(laboratory):
    model = Net().eval()
    laboratory.prepare(model, X, preload=True)
    artifact = laboratory.pack(compiled())
    assert not isinstance(artifact, Failure), artifact
    for holder, name, value, said in CHANGES:
        module = autocompile.load(artifact, model)
        module(X)
        before = put(holder, name, value)
        try:
            torch.testing.assert_close(module(X), model(X))
        finally:
            put(holder, name, before)
        torch.testing.assert_close(module(X), model(X))
        assert module.status.calls == {"aot": 2, "eager": 1}, name
        assert module.status.fallbacks[0].reason == said
    module = autocompile.load(artifact, model)
    module(X)
    before = [(holder, name, put(holder, name, value)) for holder, name, value in EQUAL]
    torch.testing.assert_close(module(X), model(X))
    for change in before:
        put(*change)
    assert module.status.calls == {"aot": 2}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: str(change[1]))
def test_each_change_is_named(change):
    holder, name, value, said = change
    model = Net()
    outside = Outside(model, identity_of(model))
    assert outside.changed() == ""
    before = put(holder, name, value)
    try:
        assert outside.changed() == said
    finally:
        put(holder, name, before)
    assert outside.changed() == ""


def test_a_container_that_was_empty_may_be_filled():
    kept = []

    def model(x):
        return x + len(kept)

    outside = Outside(model, identity_of(model))
    assert outside.changed() == ""
    kept.append(1)
    assert outside.changed().endswith("is [1], was []")


class Sub(Net):
    pass


class Static:
    @staticmethod
    def made(x):
        return x + 1

    @property
    def offset(self):
        return 1.0


OBJECT, MEAN, LATEST = Static(), np.array([1.0, 2.0]), deque([1.0])


def reading(x):
    from outside_values import SHARE

    return Static.made(x) * OBJECT.offset + getattr(CONFIG, "gain") + torch.as_tensor(MEAN).sum() + SHARE + len(LATEST)  # noqa: B009


@pytest.mark.parametrize(
    ("holder", "name", "value", "said"),
    [
        (globals(), "CONFIG", SimpleNamespace(gain=5.0), "`CONFIG.gain` is 5.0, was 2.0"),
        (globals(), "MEAN", np.array([1.0, 3.0]), "the variable `MEAN` of `reading` is array"),
        (MEAN, 0, 7.0, "the variable `MEAN` of `reading` is array"),
        (LATEST, 0, 7.0, "the variable `LATEST` of `reading` is deque([7.0]), was deque([1.0])"),
        (Static, "made", staticmethod(halved), "the code of Static.made has changed"),
        (Static, "offset", property(lambda _self: 3.0), "the code of Static.offset has changed"),
        (outside_values, "SHARE", 0.75, "`outside_values.SHARE` is 0.75, was 0.5"),
    ],
    ids=["object", "array", "in place", "deque", "static", "property", "imported in a function"],
)
def test_what_is_replaced_or_has_no_text_is_found(holder, name, value, said):
    outside = Outside(reading, identity_of(reading))
    before = vars(Static)[name] if holder is Static else put(holder, name, value)
    put(holder, name, value)
    try:
        assert outside.changed().startswith(said)
    finally:
        put(holder, name, before)
    assert outside.changed() == ""


def test_another_closure_of_the_same_code_is_another_value():
    inner = times(3.0)

    def model(x):
        return inner(x)

    outside = Outside(model, identity_of(model))
    inner = times(3.0)
    assert outside.changed() == ""
    inner = times(5.0)
    assert outside.changed() == "the variable `number` of `times.<locals>.<lambda>` is 5.0, was 3.0"


def test_what_stands_in_place_of_an_attribute_of_a_class_is_found():
    model = Sub()
    watch = Watch(model, (), outside=Outside(model, identity_of(model)))
    assert watch.changed() == ""
    model.limit = 0.5
    assert "in place of one of its class" in watch.changed()
    del model.limit
    assert watch.changed() == ""
    CONFIG.power = 0.5
    assert watch.changed() == "`CONFIG.power` is 0.5, and was not there"
    del CONFIG.power
    Sub.limit = 0.5
    assert watch.changed() == "`Sub.limit` is 0.5, and was not there"
    del Sub.limit
    assert watch.changed() == ""


def test_members_have_the_same_names_in_whatever_order_a_class_has_them():
    def of(order):
        members = {name: times(number) for name, number in order}

        def forward(self, x):
            return self.zeta(self.alpha(x))

        return type("Ordered", (nn.Module,), {**members, "forward": forward})()

    one, other = of([("zeta", 2.0), ("alpha", 3.0)]), of([("alpha", 3.0), ("zeta", 2.0)])
    assert identity_of(one).values == identity_of(other).values
    assert differences(identity_of(one), identity_of(other)) == []


class Noting(nn.Module):
    """Notes its last input in place of an attribute of its class, which it does not read."""

    limit, last = 2.0, None

    def __init__(self):
        super().__init__()
        self.inner = Net()

    def forward(self, x):
        self.last = x
        return self.inner(x) * self.limit


def test_what_a_call_notes_in_place_of_an_attribute_of_a_class_is_no_change():
    model = Noting()
    watches = [Watch(model, ()), Watch(model, (), outside=Outside(model, identity_of(model)))]
    model(X)
    assert [watch.changed() for watch in watches] == ["", ""]


def test_what_was_set_in_place_of_an_attribute_of_a_class_is_compared_when_the_model_is_loaded():
    recorded = structs.replace(identity_of(Noting()), state=state_texts(code_of(Noting())))
    assert differences(recorded, identity_like(Noting(), recorded)) == []
    for path in ("limit", "inner.limit"):
        model = Noting()
        (model.inner if path != "limit" else model).limit = 0.5
        words = [one.message for one in differences(recorded, identity_like(model, recorded))]
        assert words == [f"`{path}` is set on the module, was as in its class"]
