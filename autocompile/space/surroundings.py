"""What the choices depend on, read off a workload and its profile."""

from __future__ import annotations

from collections.abc import Sequence

from autocompile.core.plan import AxisRange
from autocompile.core.profile import GraphBreak, Submodule
from autocompile.core.sizes import reach
from autocompile.core.workload import Signature

# A child that takes nearly all of its parent's time stands for it; the parts below are looked at instead.
_NEARLY_ALL, _WORTH_COMPILING = 0.9, 0.05


def varying_axes(signatures: Sequence[Signature]) -> tuple[AxisRange, ...]:
    """Axes whose sizes differ between signatures of one form; none if the calls are of several forms."""
    forms = {tuple((t.path, t.dtype, len(t.shape)) for t in s.tensors) for s in signatures}
    constants = {tuple(sorted(s.constants)) for s in signatures}
    if len(forms) != 1 or constants != {()}:  # leaves are counted among tensors, so there must be nothing else
        return ()
    found = []
    for leaf, tensors in enumerate(zip(*(s.tensors for s in signatures), strict=True)):
        for axis in range(len(tensors[0].shape)):
            sizes = {tensor.shape[axis] for tensor in tensors}
            if len(sizes) > 1:
                found.append(AxisRange(leaf, axis, low=2, high=reach(max(sizes))))
    return tuple(found)


def hottest_parts(submodules: Sequence[Submodule]) -> tuple[str, ...]:
    """Submodules that take most of a call, the hottest first, none within another: the first level with a choice."""
    called = {one.path for one in submodules}
    root = ""
    while True:
        parts = [one for one in submodules if one.path and _caller(one.path, called) == root]
        largest = max(parts, key=lambda one: one.whole_share, default=None)
        if largest is None:
            return ()
        if largest.whole_share < _NEARLY_ALL:
            worth = [one for one in parts if one.whole_share >= _WORTH_COMPILING]
            return tuple(one.path for one in sorted(worth, key=lambda one: (-one.whole_share, one.path)))
        root = largest.path


def _caller(path: str, called: set[str]) -> str:
    """The nearest submodule above that is called itself, which a container of modules is not; else the model, ""."""
    above = path.rpartition(".")[0]
    while above and above not in called:
        above = above.rpartition(".")[0]
    return above


def breaking_parts(breaks: Sequence[GraphBreak]) -> tuple[str, ...]:
    """The submodules in whose forward the graph breaks; none if it also breaks elsewhere."""
    paths = tuple(dict.fromkeys(one.path for one in breaks))
    return paths if all(paths) else ()
