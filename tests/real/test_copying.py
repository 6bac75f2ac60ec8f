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
        self.by_default = lambda x, layer=self.parts["first"]: layer(x)
        self.acts = [lambda x: self.parts["first"](x) * 1]
        self.plain = lambda x: x.clone()
        self.register_forward_hook(lambda _module, _args, output: [*output, first(output[0])])

    def forward(self, x):
        functions = (self.by_module, self.by_self, self.by_list, self.by_method, self.by_default, *self.acts)
        return [*(f(x) for f in functions), self.by_function(x)]


def with_zeros(block):
    for parameter in block.parameters():
        nn.init.zeros_(parameter)
    return block


def test_functions_of_a_copy_use_its_modules():
    block, x = Block(), torch.ones(2, 4)
    before = block(x)
    other = with_zeros(copied(block))
    assert [float(one.detach().abs().max()) for one in other(x)] == [0.0] * 6 + [1.0, 0.0]
    torch.testing.assert_close(block(x), before)
    assert other.plain is block.plain


def test_functions_that_refer_to_themselves_or_each_other_are_copied():
    block, holder, x = nn.Linear(2, 2), nn.Module(), torch.ones(1, 2)

    def halved(x, times):
        return halved(x, times - 1) / 2 if times else block(x)

    def even(x, times):
        return odd(x, times - 1) if times else block(x)

    def odd(x, times):
        return even(x, times - 1)

    holder.block, holder.halved, holder.even = block, halved, even
    before = block(x)
    other = with_zeros(copied(holder))
    for made in (other.halved(x, 2), other.even(x, 2)):
        torch.testing.assert_close(made, torch.zeros(1, 2))
    torch.testing.assert_close(holder.halved(x, 2), before / 4)
    torch.testing.assert_close(holder.even(x, 2), before)


def test_the_reference_in_float64_is_wholly_in_float64():
    block = Block()
    reference = Call(block).in_float64()
    for ours, theirs in zip(reference(torch.ones(1, 4, dtype=torch.float64)), block(torch.ones(1, 4)), strict=True):
        assert ours.dtype == torch.float64
        torch.testing.assert_close(ours.float(), theirs)
