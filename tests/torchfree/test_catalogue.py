"""Runtimes of other distributions: broken ones are skipped, and equal names are distinguished."""

from dataclasses import replace
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest

from autocompile.core.errors import InvalidValue
from autocompile.core.plan import EAGER
from autocompile.core.workload import TrainingEntry
from autocompile.runtime import catalogue, distributions
from autocompile.runtime.catalogue import installs_for, kinds, problem_here
from autocompile.runtime.distributions import Brought, Found
from autocompile.runtime.kind import Kind
from autocompile.space.dimension import Choice, Dimension
from autocompile.space.surroundings import Surroundings

HERE = Surroundings("cpu", 2, True, False, 1)


def dimension(name):
    return Dimension(name, "a choice", lambda _around: (Choice(0),), lambda plan, _value, _around: plan)


class Plugged(Kind):
    meaning = "of a test"
    implementation = "nowhere"

    def __init__(self, name, *dimensions):
        self.name, self._dimensions = name, dimensions

    @property
    def dimensions(self):
        return self._dimensions


KIND = Plugged("plugged")
NO_KIND = "a text"


def entry(attribute, distribution="plugged-runtime", module=__name__):
    found = EntryPoint("plugged", f"{module}:{attribute}", distributions.GROUP)
    return found._for(SimpleNamespace(name=distribution))


@pytest.fixture
def plugged(monkeypatch):
    """Has the catalogue find these runtimes, each by its distribution."""

    def plug(**kinds):
        brought = {kind.name: Brought(kind, distribution) for distribution, kind in kinds.items()}
        monkeypatch.setattr(catalogue, "found", lambda _own: Found(brought, ()))
        for listed in (catalogue.kinds, catalogue.dimensions):
            listed.cache_clear()

    yield plug
    monkeypatch.undo()
    for listed in (catalogue.kinds, catalogue.dimensions):
        listed.cache_clear()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (entry("KIND", module="no_such_module"), "ModuleNotFoundError: No module named 'no_such_module'"),
        (entry("NONE"), "AttributeError"),
        (entry("NO_KIND"), "is a str, not a Kind"),
    ],
    ids=["module", "attribute", "type"],
)
def test_a_runtime_that_is_broken_is_left_out_and_told(given, words):
    with pytest.warns(RuntimeWarning, match="'plugged' of plugged-runtime .*; it is left out"):
        found = distributions._sorted_out([given, entry("KIND", "other")], (EAGER,))
    assert list(found.brought) == ["plugged"]
    assert found.brought["plugged"].distribution == "other"
    assert words in found.broken[0]


def test_two_runtimes_of_one_name_are_told_with_their_distributions():
    with pytest.raises(InvalidValue, match="two runtimes 'plugged': of one and of other"):
        distributions._sorted_out([entry("KIND", "one"), entry("KIND", "other")], (EAGER,))


def test_a_runtime_with_the_name_of_one_of_ours_is_told():
    with pytest.raises(InvalidValue, match="two runtimes 'plugged': of autocompile and of other"):
        distributions._sorted_out([entry("KIND", "other")], (EAGER, "plugged"))


def test_two_dimensions_of_one_name_are_told_with_their_owners(plugged):
    plugged(one=Plugged("first", dimension("depth")), other=Plugged("second", dimension("depth")))
    message = "two dimensions 'depth': of runtime first of one and of runtime second of other"
    with pytest.raises(InvalidValue, match=message):
        catalogue.dimensions()


@pytest.mark.parametrize("name", ["threads", "runtime"])
def test_a_dimension_with_the_name_of_one_of_ours_is_told(plugged, name):
    plugged(one=Plugged("first", dimension(name)))
    with pytest.raises(InvalidValue, match=f"two dimensions '{name}': of autocompile and of runtime first of one"):
        catalogue.dimensions()


def test_runtimes_may_share_a_dimension(plugged):
    shared = dimension("depth")
    plugged(one=Plugged("first", shared), other=Plugged("second", shared))
    assert [one.name for one in catalogue.dimensions()].count("depth") == 1


@pytest.mark.parametrize(
    ("device", "training", "names"),
    [("cpu", None, ["openvino", "onnxruntime"]), ("cuda", None, []), ("cpu", TrainingEntry("AdamW"), [])],
)
def test_only_runtimes_that_could_be_tried_are_suggested(device, training, names):
    missing = tuple((name, "it is not installed") for name in ("openvino", "onnxruntime"))
    around = Surroundings(device, 2, True, False, 1, missing=missing, training=training)
    assert list(installs_for(around)) == names


def test_a_runtime_whose_library_is_missing_is_closed_with_the_reason(plugged):
    plugged(one=Plugged("first"))
    around = Surroundings("cpu", 2, True, False, 1, missing=(("first", "it is not installed"),))
    space, left_out = catalogue.open_space(around, {})
    assert ("runtime=first", "it is not installed") in left_out
    assert "first" not in space.open_values["runtime"]
    assert "first" in catalogue.open_space(HERE, {})[0].open_values["runtime"]


def test_runtimes_of_packed_programs_are_closed_if_no_program_can_return_the_output():
    around = replace(HERE, unpackable="output is an object of class Result, which no program can return")
    closed = {kind.name for kind in kinds() if problem_here(kind, around) == around.unpackable}
    packing = {kind.name for kind in kinds() if kind.packs_as == "load" and not problem_here(kind, HERE)}
    assert closed == packing
    assert {"aot", "openvino", "onnxruntime"} <= packing
