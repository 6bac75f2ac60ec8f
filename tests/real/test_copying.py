"""A copy of a model computes with its own weights, also where its modules hold functions."""

import torch
from torch import nn

from autocompile.workload.call import Call
from autocompile.workload.copying import copied


class Block(nn.Module):
    """Functions among its attributes refer to its modules in each way that people write."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"first": nn.Linear(4, 4), "second": nn.Linear(4, 4)})
        parts, layers, first = self.parts, [self.parts["first"], self.parts["second"]], self.parts["first"].forward
        inner = lambda x: parts["first"](x) * 1  # noqa: E731
        self.by_module = lambda x: parts["second"](torch.relu(parts["first"](x)))
        self.by_self = lambda x, scale=2.0: scale * self.parts["first"](x)
        self.by_list = lambda x: sum(layer(x) for layer in layers)
        self.by_method = lambda x: first(x) * 1
        self.by_function = lambda x: inner(x) + 1
        self.plain = lambda x: x.clone()

    def forward(self, x):
        return [f(x) for f in (self.by_module, self.by_self, self.by_list, self.by_method, self.by_function)]


def with_zeros(block):
    for parameter in block.parameters():
        nn.init.zeros_(parameter)
    return block


def test_functions_of_a_copy_use_its_modules():
    block, x = Block(), torch.ones(2, 4)
    before = block(x)
    other = with_zeros(copied(block))
    assert [float(one.detach().abs().max()) for one in other(x)] == [0.0, 0.0, 0.0, 0.0, 1.0]
    torch.testing.assert_close(block(x), before)
    assert other.plain is block.plain


def test_a_function_that_refers_to_itself_is_copied():
    block = nn.Linear(2, 2)

    def halved(x, times):
        return halved(x, times - 1) / 2 if times else block(x)

    holder = nn.Module()
    holder.block, holder.halved = block, halved
    x = torch.ones(1, 2)
    torch.testing.assert_close(copied(holder).halved(x, 2), block(x) / 4)


def test_the_reference_in_float64_is_wholly_in_float64():
    block = Block()
    reference = Call(block).in_float64()
    for ours, theirs in zip(reference(torch.ones(1, 4, dtype=torch.float64)), block(torch.ones(1, 4)), strict=True):
        assert ours.dtype == torch.float64
        torch.testing.assert_close(ours.float(), theirs)
