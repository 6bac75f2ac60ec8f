"""The portfolio study on a GPU: the device of its workloads, and the ways by hand that it runs."""

import importlib
import sys
from types import SimpleNamespace

import pytest
import torch
from places import REPOSITORY
from torch.utils import _pytree as pytree

NAMES = ("workloads", "by_hand")


@pytest.fixture(scope="module")
def study():
    """Its scripts, which find each other by their names alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(REPOSITORY / "studies" / "portfolio"))
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in NAMES})
    for name in NAMES:
        del sys.modules[name]


@pytest.mark.parametrize("name", ["mlp", "graph", "unet", "decoder"])
def test_a_workload_lies_on_the_device_that_the_study_runs_on(study, monkeypatch, name):
    monkeypatch.setattr(study.workloads, "device_type", lambda: "meta")
    model, inputs = study.workloads.workload(name)
    tensors = [*model.parameters(), *model.buffers(), *pytree.tree_leaves(inputs)]
    assert {tensor.device.type for tensor in tensors} == {"meta"}


def test_ways_on_a_gpu_need_no_library_of_a_cpu(study):
    ways = study.by_hand.ways("cuda")
    assert {"eager", "compiled", "reduce_overhead"} <= set(ways) <= set(study.by_hand.WAYS)
    assert not {"openvino", "onnxruntime"} & set(ways)
    assert not any("reduce_overhead" in way for way in study.by_hand.ways("cpu"))


@torch.no_grad()
def test_a_way_by_hand_computes_what_eager_does(study):
    model, inputs = study.workloads.workload("mlp")
    expected = study.by_hand.WAYS["eager"](model, inputs)()
    torch.testing.assert_close(study.by_hand.WAYS["eager_bf16"](model, inputs)().float(), expected, rtol=0.1, atol=0.1)
