"""A script that trains, as it is, with a recommendation applied: to its model and its optimizer."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakSet

import torch
from torch import nn
from torch.optim.optimizer import Optimizer
from torch.utils import _pytree as pytree

from autocompile.artifact.fitting import Fitting
from autocompile.artifact.integrity import open_artifact
from autocompile.artifact.options import check_trained
from autocompile.artifact.prepare import prepare
from autocompile.artifact.prepared import PreparedStep
from autocompile.artifact.step_forms import key_of
from autocompile.core.errors import InvalidRecommendation, InvalidWorkload
from autocompile.core.manifest import Manifest
from autocompile.core.service import Service
from autocompile.workload.state import State
from autocompile.workload.watching.outermost import outermost_calls
from autocompile.workload.watching.sight import uncompiled
from autocompile.workload.watching.updates import timed_updates

_HALF = (torch.bfloat16, torch.float16)
_OTHER_MODE = "it was tuned in the other mode, of model.train() and model.eval()"
_NO_OPTIMIZER = "no optimizer of its parameters had been made"


class TrainedScript:
    """The training steps of a script, of which those of the model that was tuned are done as recommended.

    Its calls with gradients go to what the plan makes of the model, in the plan's precision; what they give is in
    single precision, as the script's own code computes the loss. Its optimizer is put on the plan's implementation.
    Calls without gradients are made as they are. Raises InvalidRecommendation and InvalidArtifact as `prepare` does,
    and where the plan does something with the loss, which is the script's.
    """

    def __init__(self, directory: Path) -> None:
        manifest = open_artifact(directory, None).manifest
        check_trained(manifest)
        _check_for_loops(manifest)
        self._optimizers: WeakSet[Optimizer] = WeakSet()
        self._fitting = Fitting(manifest, lambda module: _Trained(directory, manifest, module, self._optimizers))

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Train what is trained within."""
        with ExitStack() as stack:
            stack.enter_context(outermost_calls(self._called))
            stack.enter_context(_made_known(self._optimizers))
            stack.enter_context(_timed_gradients(self._derived))
            stack.enter_context(timed_updates(self._stepped))
            yield

    def services(self) -> list[Service]:
        """What came of it, for each module that was the one that was tuned."""
        return [one.service() for one in self._fitting.applied]

    @property
    def others(self) -> dict[str, str]:
        """How modules that were called differ from the one that was tuned, by their class."""
        return dict(self._fitting.others)

    def _called(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], made: Callable[..., Any]
    ) -> Any:
        applied = self._fitting(uncompiled(module)) if torch.is_grad_enabled() else None
        return made(module, *args, **kwargs) if applied is None else applied(args, kwargs, made)

    def _derived(self, seconds: float) -> None:
        for one in self._fitting.applied:
            one.derived(seconds)

    def _stepped(self, optimizer: Optimizer, seconds: float) -> None:
        for one in self._fitting.applied:
            one.stepped(optimizer, seconds)


class _Trained:
    """The recommendation, on one module; applied at its first call that has gradients."""

    def __init__(self, directory: Path, manifest: Manifest, module: nn.Module, optimizers: WeakSet[Optimizer]) -> None:
        self._directory, self._manifest, self._module, self._optimizers = directory, manifest, module, optimizers
        self._trains = module.training
        self._step: PreparedStep | None = None
        self._seen: set[Any] = set()
        self._left: Counter[str] = Counter()
        self._told: list[str] = []
        self._trained: Counter[str] = Counter()
        self._is_called = False
        self._spent, self._seconds, self._first_s = 0.0, 0.0, 0.0

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any], made: Callable[..., Any]) -> Any:
        """Make a call as recommended, or as it is."""
        began = time.perf_counter()
        reason = self._reason_against()
        self._left.update([reason] if reason else [])
        output = made(self._module, *args, **kwargs) if reason else self._output(args, kwargs)
        self._is_called = True
        self._spent += time.perf_counter() - began
        return output

    def derived(self, seconds: float) -> None:
        """Gradients were computed; they count for the module that was called before."""
        if self._is_called:
            self._spent += seconds
            self._is_called = False

    def stepped(self, optimizer: Optimizer, seconds: float) -> None:
        """An optimizer has done a step, its update in so many seconds: if it is the module's own, one of it is over."""
        if self._step is None or optimizer is not self._step.optimizer:
            return
        took, self._spent = self._spent + seconds, 0.0
        if self._trained:
            self._seconds += took
        else:
            self._first_s = took
        self._trained[self._step.status.runtime] += 1

    def service(self) -> Service:
        """What came of it so far."""
        status, steps = self._step and self._step.status, sum(self._trained.values())
        return Service(
            module=type(self._module).__name__,
            label=status.label if status else "",
            calls=dict(self._trained),
            first_s=self._first_s,
            mean_ms=1e3 * self._seconds / (steps - 1) if steps > 1 else None,
            left=dict(self._left),
            notes=tuple(dict.fromkeys((*self._told, *(status.notes if status else ())))),
            kind="training",
        )

    def _reason_against(self) -> str:
        """Why this call is made as it is, or ""."""
        if self._module.training != self._trains:
            return _OTHER_MODE
        return "" if self._step is not None else self._prepared()

    def _prepared(self) -> str:
        """Apply it; why that cannot be, or "". What it warns of is told at the end."""
        own = {id(parameter) for parameter in self._module.parameters()}
        found = [one for one in self._optimizers if any(id(each) in own for each in _held(one))]
        if not found:
            return _NO_OPTIMIZER
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RuntimeWarning)
            try:
                self._step = prepare(self._directory, self._module, found[-1], loss=_of_the_script)
            except InvalidWorkload as fault:
                return str(fault)
        self._told += dict.fromkeys(str(one.message) for one in caught)
        return ""

    def _output(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        assert self._step is not None
        step, key = self._step, key_of([args, kwargs])
        with torch.autocast(self._manifest.device_type, enabled=False), step.autocast():
            if key in self._seen:
                return _widened(step.model(*args, **kwargs))
            before = State(self._module).snapshot()
            try:
                output = step.model(*args, **kwargs)
            except Exception as fault:  # the compiler's, or the model's own, which it raises again
                before.restore()
                output = step.without_compiler(lambda: self._module(*args, **kwargs), fault)
        self._seen.add(key)
        return _widened(output)


def _of_the_script(_model: Any, _batch: Any) -> torch.Tensor:
    raise AssertionError("the script computes its loss itself")


def _held(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _widened(output: Any) -> Any:
    """In single precision what autocast has left in half."""
    kind = next((leaf.device.type for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)), "cpu")
    if not torch.is_autocast_enabled(kind):
        return output
    return pytree.tree_map_only(torch.Tensor, lambda one: one.float() if one.dtype in _HALF else one, output)


def _check_for_loops(manifest: Manifest) -> None:
    """Raises InvalidRecommendation where the plan does what a script's own loop has done its way."""
    plan = manifest.plan
    does = "compiles the loss with the model" if plan.settings.get("with_loss") else ""
    does = f"cuts each batch into {plan.micro_batches}" if plan.micro_batches > 1 else does
    if does:
        remedy = "train with autocompile.prepare(path, model, optimizer, loss=loss), or tune the script with --module"
        raise InvalidRecommendation(f"it {does}, which the script's own loop cannot", where="run", remedy=remedy)


@contextmanager
def _made_known(optimizers: WeakSet[Optimizer]) -> Iterator[None]:
    """Gather the optimizers that are made."""
    before = Optimizer.__init__

    def made(self: Optimizer, *args: Any, **kwargs: Any) -> None:
        before(self, *args, **kwargs)
        optimizers.add(self)

    Optimizer.__init__ = made  # type: ignore[method-assign]
    try:
        yield
    finally:
        Optimizer.__init__ = before  # type: ignore[method-assign]


@contextmanager
def _timed_gradients(told: Callable[[float], None]) -> Iterator[None]:
    """Tell how long each computation of gradients took; a tensor's own `backward` comes by here, too."""
    before = torch.autograd.backward

    def backward(*args: Any, **kwargs: Any) -> None:
        began = time.perf_counter()
        before(*args, **kwargs)
        told(time.perf_counter() - began)

    torch.autograd.backward = backward
    try:
        yield
    finally:
        torch.autograd.backward = before
