"""Scopes and sizes of compilation: always the same results as eager, also with hooks and shared modules."""

import models
import pytest
import torch
from torch import nn

from autocompile.core.outcome import Failure, Measurement
from autocompile.runtime.building import build
from autocompile.runtime.inductor.settings import compiled
from autocompile.space.surroundings import breaking_parts, hottest_parts, varying_axes
from autocompile.workload.call import Call


def test_blocks_with_hooks_that_are_shared_and_called_twice_are_right(laboratory):
    profile = laboratory.prepare(models.Knotted().eval(), torch.randn(4, 32))
    paths = tuple(path for block in profile.blocks for path in block.paths)
    assert len(paths) >= 2
    found = laboratory.trial(compiled(scope=paths))
    assert isinstance(found, Measurement), found
    assert found.accuracy.error <= found.accuracy.limit


def test_the_hottest_parts_are_found_and_compiled(laboratory):
    profile = laboratory.prepare(models.Stack(width=64, depth=2).eval(), torch.randn(64, 64))
    parts = hottest_parts(profile.submodules)
    assert set(parts[:2]) == {"layers.0", "layers.1"}
    found = laboratory.trial(compiled(scope=parts[:1]))
    assert isinstance(found, Measurement), found
    assert found.counters.graphs == 1


def test_what_breaks_the_graph_is_found_and_left_alone(laboratory):
    profile = laboratory.prepare(models.Interrupted().eval(), torch.randn(4, 32))
    assert breaking_parts(profile.graph_breaks) == ("noting",)
    found = laboratory.trial(compiled(left_eager=("noting",)))
    assert isinstance(found, Measurement), found
    assert found.counters.graphs == 2


class NotCompiled(nn.Module):
    @torch.compiler.disable
    def forward(self, x):
        return x + 1


class Skipped(nn.Module):
    """The compiler skips its part."""

    def __init__(self):
        super().__init__()
        self.part = NotCompiled()

    def forward(self, x):
        return self.part(x)


def test_what_the_compiler_skips_is_no_candidate(laboratory):
    laboratory.prepare(Skipped().eval(), torch.randn(2, 4))
    found = laboratory.trial(compiled(scope=("part",)))
    assert isinstance(found, Failure), found
    assert (found.kind, found.message.split(":")[0]) == ("unsupported", "nothing was compiled")


def test_marked_axes_are_compiled_once_for_all_sizes(laboratory):
    laboratory.prepare(models.Stack().eval(), [torch.randn(n, 32) for n in (3, 5, 9)])
    ranges = varying_axes(laboratory.workload.signatures)
    assert [(one.leaf, one.axis) for one in ranges] == [(0, 0)]
    found = laboratory.trial(compiled(ranges=ranges))
    assert isinstance(found, Measurement), found
    assert (found.counters.graphs, found.counters.recompiles) == (1, 0)


@pytest.mark.parametrize("plan", [compiled(backend="eager", left_eager=("noting",)), compiled(backend="eager")])
def test_the_model_itself_is_left_as_it_was(plan):
    model, x = models.Interrupted().eval(), torch.randn(2, 32)
    expected = model(x)
    built = build(Call(model), plan)
    assert torch.allclose(built(x), expected, atol=1e-6)
    assert "forward" not in vars(model.noting)
