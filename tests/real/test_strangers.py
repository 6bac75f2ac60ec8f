"""Tensors that a program would copy although nobody would notice their changes."""

import pytest
import torch
from torch import nn

from autocompile.core.plan import Plan
from autocompile.runtime.base import NotPackable
from autocompile.runtime.export import exported
from autocompile.runtime.strangers import refuse_strangers
from autocompile.workload.samples import Sample

OUTSIDE = torch.full((4,), 2.0)
SAMPLE = Sample((torch.randn(3, 4),), {})


class Net(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return x * self.scale


class Listed(Net):
    def forward(self, x):
        return x * self.scale[0]


class Global(Net):
    def forward(self, x):
        return x * OUTSIDE


def check(model):
    export = exported(model, Plan("openvino"), SAMPLE)
    refuse_strangers(export.program, export.earlier, model)


def closing(scale):
    return (lambda x: x * scale[0]) if isinstance(scale, list) else (lambda x: x * scale)


def closing_over(module):
    return lambda x: module(x) + 1


@pytest.mark.parametrize("model", [Listed([torch.ones(4)]), closing([torch.ones(4)]), closing_over(nn.Linear(4, 4))])
def test_a_copy_of_a_tensor_in_a_list_or_in_another_module_is_refused(model):
    with pytest.raises(NotPackable, match=r"a tensor from outside of itself.*; make it a buffer") as raised:
        check(model)
    assert raised.value.cause == "no program"


@pytest.mark.parametrize("scale", [torch.ones(4), nn.Parameter(torch.ones(4)), 2.0], ids=["plain", "weight", "number"])
def test_what_is_compared_with_the_models_or_made_while_tracing_is_not(scale):
    check(Net(scale))
    check(lambda x: x * torch.arange(4))
    check(Global(None))
    check(closing(torch.ones(4)))


def test_each_closure_of_one_function_is_known():
    check(nn.Sequential(Applied(closing(torch.ones(4))), Applied(closing(torch.zeros(4)))))


def test_a_sparse_tensor_that_the_program_does_not_use_does_not_matter():
    model = Net(2.0)
    model.register_buffer("edges", torch.eye(3).to_sparse())
    check(model)


class Applied(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)
