"""Applies a recommendation to the model and the optimizer of an unchanged script that trains."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from weakref import ref

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from autocompile.artifact.fitting import AppliedScript, Fitting
from autocompile.artifact.integrity import open_artifact
from autocompile.artifact.options import check_trained
from autocompile.artifact.trained_module import TrainedModule
from autocompile.core.errors import InvalidRecommendation
from autocompile.core.manifest import Manifest
from autocompile.workload.attention import attention_as
from autocompile.workload.outermost import outermost_calls, uncompiled
from autocompile.workload.watching.updates import timed_updates


class TrainedScript(AppliedScript[TrainedModule]):
    """Does those training steps of a script as recommended that train the model that was tuned.

    Calls of the model with gradients go to the model that the plan builds, in the plan's precision. Their outputs are
    converted to single precision, because the script's own code computes the loss. The optimizer is switched to the
    plan's implementation. Calls without gradients are not changed. Raises InvalidRecommendation and InvalidArtifact as
    `prepare` does, and InvalidRecommendation if the plan changes the loss or the loop, which are the script's.
    """

    def __init__(self, directory: Path) -> None:
        manifest = open_artifact(directory, None).manifest
        check_trained(manifest)
        _check_for_loops(manifest)
        self._optimizers: list[ref[Optimizer]] = []
        self._attention = manifest.plan.attention
        self._fitting = Fitting(manifest, lambda module: TrainedModule(directory, manifest, module, self._there))

    def _there(self) -> list[Optimizer]:
        """Return the optimizers that were created and still exist, in order."""
        self._optimizers = [one for one in self._optimizers if one() is not None]
        return [optimizer for one in self._optimizers if (optimizer := one()) is not None]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Train as recommended within the context."""
        with ExitStack() as stack:
            stack.enter_context(outermost_calls(self._called))
            stack.enter_context(_made_known(lambda optimizer: self._optimizers.append(ref(optimizer))))
            stack.enter_context(_gradients(self._derived, self._attention))
            stack.enter_context(timed_updates(self._stepped, self._begins))
            yield

    def _called(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], made: Callable[..., Any]
    ) -> Any:
        applied = self._fitting(uncompiled(module)) if torch.is_grad_enabled() else None
        return made(module, *args, **kwargs) if applied is None else applied(args, kwargs, made)

    def _derived(self, seconds: float) -> None:
        for one in self._fitting.applied:
            one.derived(seconds)

    def _begins(self, optimizer: Optimizer) -> None:
        for one in self._fitting.applied:
            one.begins(optimizer)

    def _stepped(self, optimizer: Optimizer, seconds: float) -> None:
        for one in self._fitting.applied:
            one.stepped(optimizer, seconds)


def _check_for_loops(manifest: Manifest) -> None:
    """Raise InvalidRecommendation if the plan changes something that the script's own loop does."""
    plan = manifest.plan
    does = "compiles the loss with the model" if plan.settings.get("with_loss") else ""
    does = f"cuts each batch into {plan.micro_batches}" if plan.micro_batches > 1 else does
    does = "scales the loss" if plan.autocast == "float16" else does
    does = f"takes batches of {plan.batch} samples" if plan.batch else does
    if does:
        remedy = "train with autocompile.prepare(path, model, optimizer, loss=loss), or tune the script with --module"
        fault = f"the recommendation {does}, which is not possible in the script's own loop"
        raise InvalidRecommendation(fault, where="run", remedy=remedy)


@contextmanager
def _made_known(told: Callable[[Optimizer], None]) -> Iterator[None]:
    """Call `told` with each optimizer that is created within the context."""
    before = Optimizer.__init__

    def made(self: Optimizer, *args: Any, **kwargs: Any) -> None:
        before(self, *args, **kwargs)
        told(self)

    Optimizer.__init__ = made  # type: ignore[method-assign]
    try:
        yield
    finally:
        Optimizer.__init__ = before  # type: ignore[method-assign]


@contextmanager
def _gradients(told: Callable[[float], None], attention: str) -> Iterator[None]:
    """Call `told` with the seconds of each computation of gradients, including those by `Tensor.backward`.

    What the backward pass recomputes is computed with the plan's way of attention, as in the forward pass.
    """
    before = torch.autograd.backward

    def backward(*args: Any, **kwargs: Any) -> None:
        began = time.perf_counter()
        with attention_as(attention):
            before(*args, **kwargs)
        told(time.perf_counter() - began)

    torch.autograd.backward = backward
    try:
        yield
    finally:
        torch.autograd.backward = before
