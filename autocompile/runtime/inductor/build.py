"""A plan, carried out: the one place where a model is copied, transformed and compiled."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from autocompile.core.plan import AxisRange, Plan
from autocompile.runtime.inductor.padding import Padder
from autocompile.workload.call import Call


class Marker:
    """Marks the axes of a call's arguments that vary, once for each new combination of sizes."""

    def __init__(self, ranges: tuple[AxisRange, ...]) -> None:
        import torch._dynamo as dynamo  # noqa: PLC0415  only what compiles may import the compiler

        self._ranges, self._dynamo = ranges, dynamo
        self._seen: set[tuple[int, ...]] = set()

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Mark, if these sizes are new; a size of one is another program to the compiler, whatever is marked."""
        leaves = pytree.tree_leaves((args, kwargs))
        if len(leaves) <= max(one.leaf for one in self._ranges):
            return
        places = [(one, leaves[one.leaf]) for one in self._ranges]
        if not all(isinstance(leaf, torch.Tensor) and leaf.dim() > one.axis for one, leaf in places):
            return
        sizes = tuple(leaf.shape[one.axis] for one, leaf in places)
        if sizes in self._seen:
            return
        self._seen.add(sizes)
        for (one, leaf), size in zip(places, sizes, strict=True):
            if max(one.low, 2) <= size <= one.high:
                self._dynamo.mark_dynamic(leaf, one.axis, min=one.low, max=one.high)


class Built(Call):
    """A model that runs as its plan says: called like the model, without gradients."""

    def __init__(self, call: Callable[..., Any], plan: Plan, device_type: str, module: nn.Module | None) -> None:
        model = Padder(call, plan.buckets) if plan.buckets else call
        super().__init__(model, module=module, threads=plan.threads)
        self._autocast = getattr(torch, plan.autocast) if plan.autocast else None
        self._device_type = device_type
        self._mark = Marker(plan.ranges) if plan.ranges else None
        self._reuses_outputs = bool(plan.options.get("triton.cudagraphs"))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._mark is not None:
            self._mark(args, kwargs)
        with torch.no_grad():
            if self._autocast is None:
                return self._owned(self.model(*args, **kwargs))
            # Outside the compiled region: inside it, no compiler cache can be used.
            with torch.autocast(self._device_type, dtype=self._autocast):
                output = self.model(*args, **kwargs)
            return self._owned(pytree.tree_map(self._restored, output))

    def _owned(self, output: Any) -> Any:
        """CUDA graphs write each output where the last one was, so a caller gets a copy."""
        if not self._reuses_outputs:
            return output
        return pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, output)

    def _restored(self, leaf: Any) -> Any:
        reduced = isinstance(leaf, torch.Tensor) and leaf.dtype == self._autocast
        return leaf.float() if reduced else leaf


def build(model: Any, plan: Plan, device_type: str, *, isolate: bool = False) -> Built:
    """Carry out `plan` on `model`, which stays as it is.

    What is changed in place is changed on a copy that shares the parameters, so it costs no memory and
    follows later changes of the weights; only another memory format makes weights of its own. With
    `isolate` the copy has buffers of its own, so that two of them do not disturb each other's state. With
    the option `freezing` weights are constants of the program and their later changes are not followed;
    it is a setting of the process, for all that is compiled there from then on.
    """
    target = transformed(model, plan, isolate=isolate)
    return Built(_compiled(target, plan), plan, device_type, target if isinstance(target, nn.Module) else None)


def transformed(model: Any, plan: Plan, *, isolate: bool = False) -> Any:
    """The model with all of the plan done to it that is no compiling: itself, or a copy; see `build`."""
    in_place = plan.scope or plan.left_eager or plan.memory_format
    if not isinstance(model, nn.Module) or not (isolate or in_place):
        return model
    target = _sharing_copy(model, own_buffers=isolate, own_images=bool(plan.memory_format))
    for path in plan.left_eager:
        part = target.get_submodule(path)
        part.forward = torch.compiler.disable(part.forward)  # type: ignore[no-untyped-call]
    if plan.memory_format:
        target.to(memory_format=getattr(torch, plan.memory_format))  # type: ignore[call-overload]
    return target


def _sharing_copy(model: nn.Module, *, own_buffers: bool, own_images: bool) -> nn.Module:
    """A copy of a module's structure that shares its tensors, but for buffers or 4-D ones if they are to be own."""
    shared = [*model.parameters(), *([] if own_buffers else model.buffers())]
    memo = {id(tensor): tensor for tensor in shared if not (own_images and tensor.dim() == 4)}
    return copy.deepcopy(model, memo)


def _compiled(target: Any, plan: Plan) -> Callable[..., Any]:
    if not plan.compiles:
        return target  # type: ignore[no-any-return]
    if plan.options.get("freezing"):
        # Dynamo asks the global setting while it traces; the option alone reaches the backend, and freezes nothing.
        import torch._inductor.config as inductor  # noqa: PLC0415  only what compiles may import the compiler

        inductor.freezing = True
    keywords: dict[str, Any] = {"backend": plan.backend, "dynamic": plan.dynamic}
    if plan.options:
        keywords["options"] = {**plan.options, **_quiet(plan)}
    if not plan.scope:
        return torch.compile(target, **keywords)
    for path in plan.scope:
        target.get_submodule(path).compile(**keywords)
    return target  # type: ignore[no-any-return]


def _quiet(plan: Plan) -> dict[str, Any]:
    """Options that keep the compiler from printing a table on standard error for everything that it times."""
    if not plan.options.get("max_autotune"):
        return {}
    import torch._inductor.config as inductor  # noqa: PLC0415  only what compiles may import the compiler

    silent = {"max_autotune_report_choices_stats": False, "autotune_num_choices_displayed": 0}
    return {name: value for name, value in silent.items() if hasattr(inductor, name)}
