"""Values outside of a model's modules that change after the model was loaded: no call gets a stale answer."""

import pytest
import torch
from torch import nn

import autocompile
from autocompile.core.outcome import Failure
from autocompile.runtime.inductor.settings import compiled
from autocompile.runtime.outside import Outside
from autocompile.workload.identity.facts import identity_of

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
    (globals(), "helper", halved, "the variable `helper` of `Net.forward` is another function"),
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
    if isinstance(holder, dict | list):
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
