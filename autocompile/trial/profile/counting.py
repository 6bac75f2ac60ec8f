"""Count the work of a call while it runs: FLOPs, bytes, operators, and the bytes that each submodule allocates.

FLOPs are those of matrix products, convolutions and attention (`torch.utils.flop_counter`). Bytes are the operands
and results of every operator that is not a view, as if no data stayed in a cache between two operators.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from autocompile.core.step_profile import Phase
from autocompile.trial.profile.kernels import NOT_KERNELS
from autocompile.trial.profile.marks import spans_of
from autocompile.trial.profile.submodules import following
from autocompile.workload.samples import Sample, clone
from autocompile.workload.step import Step

# These operators read only as much of their first operand as they return.
_GATHERS = frozenset(f"aten::{name}" for name in ("embedding", "index", "index_select", "gather"))


@dataclass(frozen=True)
class Counted:
    """The work of a call or of a part of it. `convolution_flops` are those of the `flops` that are in convolutions."""

    flops: int = 0
    bytes: int = 0
    operators: int = 0
    convolution_flops: int = 0

    def __add__(self, other: Counted) -> Counted:
        return Counted(*(own + more for own, more in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: Counted) -> Counted:
        return Counted(*(own - less for own, less in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class Work:
    """The work of one call: in total, and by phase if it has phases.

    `allocated`: bytes by submodule path, without those that its children allocate.
    """

    whole: Counted = Counted()
    phases: Mapping[Phase, Counted] = field(default_factory=dict)
    allocated: Mapping[str, int] = field(default_factory=dict)


def work_of(step: Step, sample: Sample) -> Work:
    """Count the work of one run of a step that is not compiled, on a copy of the sample."""
    own = clone(sample)
    traffic = _Traffic()
    flops = FlopCounterMode(display=False)

    def so_far() -> Counted:
        by_operator = flops.get_flop_counts().get("Global", {})
        convolved = sum(count for operator, count in by_operator.items() if "convolution" in str(operator))
        return Counted(flops.get_total_flops(), traffic.bytes, traffic.operators, convolved)

    with (
        following(step.module, traffic.enter, traffic.leave),
        spans_of(step, so_far) as spans,
        flops,
        traffic,
    ):
        step.work(own)
    phases: dict[Phase, Counted] = {}
    for span in spans:
        phases[span.phase] = phases.get(span.phase, Counted()) + (span.end - span.start)
    return Work(so_far(), phases, dict(traffic.allocated))


class _Traffic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sums the bytes that operators read and write."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = self.operators = 0
        self.allocated: Counter[str] = Counter()
        self._path = [""]

    def enter(self, path: str) -> None:
        """Enter a submodule: allocations are counted for it from now on."""
        self._path.append(path)

    def leave(self) -> None:
        """Leave the submodule."""
        self._path.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name  # noqa: SLF001
        operands = list(_tensors((args, kwargs)))
        results = list(_tensors(result))
        taken = {tensor.untyped_storage().data_ptr() for tensor in operands}
        fresh = [tensor for tensor in results if tensor.untyped_storage().data_ptr() not in taken]
        self.allocated[self._path[-1]] += sum(map(_bytes_of, fresh))
        if name in NOT_KERNELS or func.is_view:
            return result
        self.operators += 1
        written = sum(map(_bytes_of, results))
        if name in _GATHERS:
            operands = operands[1:]
            self.bytes += written
        self.bytes += written + sum(map(_bytes_of, operands))
        return result


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    for leaf in pytree.tree_leaves(tree):
        if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided:
            yield leaf


def _bytes_of(tensor: torch.Tensor) -> int:
    """Return the bytes of the elements that are distinct in memory: an expanded axis counts once."""
    sizes = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    return math.prod(sizes) * tensor.element_size()
