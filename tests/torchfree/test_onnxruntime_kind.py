"""ONNX Runtime, from the view of the modules that decide."""

import dataclasses

import pytest
from builders import failure
from msgspec.structs import replace

from autocompile.core.plan import Plan
from autocompile.core.program import Program
from autocompile.core.serde import to_plain
from autocompile.runtime.catalogue import kind, open_space
from autocompile.runtime.onnxruntime import graph
from autocompile.runtime.onnxruntime import kind as room
from autocompile.runtime.onnxruntime.dimensions import GRAPH_OPTIMIZATION
from autocompile.runtime.onnxruntime.graph import Graph, Session, Value, graph_for_here, session_of
from autocompile.runtime.onnxruntime.kind import INEXPRESSIBLE, KIND
from autocompile.runtime.onnxruntime.settings import settings_of
from autocompile.runtime.snippet import snippet
from autocompile.space.surroundings import Surroundings

CPU = Surroundings("cpu", 4, True, True, 3)
GPU = Surroundings("cuda", 16, True, True, 3)
PLAN = Plan(runtime=KIND.name)
TAILORED = Graph("p.tailored.onnx", "p.tailored.onnx.data", processor="avx avx2")
PORTABLE = Graph("p.onnx", "p.onnx.data", level="all")


@pytest.fixture
def installed(monkeypatch):
    """Has these distributions installed, all of one version."""
    return lambda *names: monkeypatch.setattr(room, "_version", lambda name: "1.2" if name in names else "")


def test_it_is_one_of_the_runtimes_that_are_searched_over(installed):
    installed("onnxruntime")
    assert kind(KIND.name) is KIND
    space, _left_out = open_space(CPU, {"runtime": (), "amp": (), "memory_format": (), "threads": ()})
    plans = [plan for _candidate, plan in space.programs if plan.runtime == KIND.name]
    assert {(plan.autocast, plan.memory_format) for plan in plans} == {("", "")}
    assert {plan.threads for plan in plans} == {0, 1, 2}
    assert {settings_of(plan).graph_optimization for plan in plans} == {"all", "extended"}


def test_the_layout_is_varied_where_there_are_convolutions_on_a_cpu():
    def reasons(around):
        dimension = GRAPH_OPTIMIZATION
        return {choice.value: choice.unavailable for choice in dimension.choices(around)}

    assert reasons(CPU) == {"all": "", "extended": ""}
    assert reasons(GPU)["extended"] == "the layout is changed on CPUs only"
    without = Surroundings("cpu", 4, True, False, 3)
    assert reasons(without)["extended"] == "the model has no convolutions, so the program would be the same"


def test_threads_may_spin_between_calls_where_there_are_several_on_a_cpu():
    def spinning(around):
        space, _left_out = open_space(around, {"runtime": (), "threads": ()})
        plans = [plan for _candidate, plan in space.programs if plan.runtime == KIND.name]
        return {(plan.threads, settings_of(plan).spinning) for plan in plans}

    assert spinning(CPU) == {(0, False), (0, True), (1, False), (2, False), (2, True)}
    assert spinning(dataclasses.replace(CPU, cores=1)) == {(0, False)}
    assert spinning(dataclasses.replace(CPU, in_script=True)) == {(0, False), (1, False), (2, False)}
    spun = replace(PLAN, settings={"spinning": True})
    assert "force_spinning_stop" in snippet(PLAN, device_type="cpu", is_module=True)
    assert "force_spinning_stop" not in snippet(spun, device_type="cpu", is_module=True)


@pytest.mark.parametrize(
    ("names", "around", "problem", "version"),
    [
        (("onnxruntime",), CPU, "", "1.2"),
        (("onnxruntime-gpu",), CPU, "", "1.2"),
        (("onnxruntime-gpu",), GPU, "", "1.2"),
        (("onnxruntime",), GPU, "onnxruntime-gpu is not installed; pip install onnxruntime-gpu", "1.2"),
        ((), CPU, "onnxruntime is not installed; pip install onnxruntime", ""),
        (("onnxruntime",), Surroundings("mps", 4, True, True, 3), "it does not run on mps", "1.2"),
    ],
)
def test_what_is_missing_is_named_by_its_distribution(installed, names, around, problem, version):
    installed(*names)
    assert KIND.problem(around) == KIND.lacks(around.device_type) == problem
    assert KIND.version() == version


def test_what_cannot_be_converted_cannot_with_other_settings_either():
    failed = replace(failure("unsupported"), cause=INEXPRESSIBLE)
    assert KIND.fails_alike(failed, PLAN, replace(PLAN, threads=1))
    assert not KIND.fails_alike(failed, PLAN, replace(PLAN, batch=4))
    assert not KIND.fails_alike(failure("unsupported"), PLAN, replace(PLAN, threads=1))


def test_its_programs_have_a_copy_of_the_weights():
    assert KIND.holds_weights(PLAN)
    assert KIND.copies_weights(PLAN) == "all"


def test_the_snippet_exports_and_runs_without_this_library():
    code = snippet(replace(PLAN, threads=2), device_type="cpu", is_module=True)
    assert "torch.set_num_threads(2)" in code
    assert "torch.onnx.export(over_tensors, tensors, path, dynamo=True" in code
    assert "ORT_ENABLE_ALL" in code
    extended = replace(PLAN, settings={"graph_optimization": "extended"})
    assert "ORT_ENABLE_EXTENDED" in snippet(extended, device_type="cpu", is_module=True)


def packed(*graphs, files=("p.onnx", "p.onnx.data", "p.tailored.onnx", "p.tailored.onnx.data")):
    record = Session((Value("x", "float32"),), (Value("y", "float32"),), graphs)
    return Program(1, (), "", (), (), "", (None,), files, to_plain(record))


def test_a_graph_laid_out_for_another_processor_is_not_taken(monkeypatch):
    session = session_of(packed(TAILORED, PORTABLE))
    for here, expected in (("avx avx2", TAILORED), ("avx", PORTABLE), ("avx avx2 avx512f", PORTABLE), ("", PORTABLE)):
        monkeypatch.setattr(graph, "this_processor", lambda here=here: here)
        assert graph_for_here(session) == expected


def test_a_record_that_names_files_of_others_is_refused():
    with pytest.raises(ValueError, match=r"p\.tailored\.onnx, which is not one of its files"):
        session_of(packed(TAILORED, PORTABLE, files=("p.onnx", "p.onnx.data")))
    with pytest.raises(ValueError, match="no graph"):
        session_of(packed())
