"""Applies a recommendation to a module that a script trains, and to its optimizers."""

from __future__ import annotations

import copy
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from weakref import ref

import torch
from torch import nn
from torch._C._functorch import peek_interpreter_stack
from torch.optim.optimizer import Optimizer
from torch.utils import _pytree as pytree

from autocompile.artifact.prepare import apply_to_optimizer, prepare
from autocompile.artifact.prepared import PreparedStep
from autocompile.artifact.step_forms import key_of
from autocompile.core.errors import InvalidWorkload
from autocompile.core.manifest import Manifest
from autocompile.core.service import Service
from autocompile.workload.own_autocast import is_wrapped, unwrapped
from autocompile.workload.training.recorded import tensors_of

# Returns the optimizers that currently exist.
Made = Callable[[], list[Optimizer]]
_HALF = (torch.bfloat16, torch.float16)
_MOST_FORMS = 1024
_OTHER_MODE = "it was tuned in the other mode (model.train() or model.eval())"
_TRANSFORMED = "it was called within a transform of torch.func"
_NO_OPTIMIZER = "no optimizer of its parameters had been created yet"


class TrainedModule:
    """The recommendation, applied to one module at its first call with gradients."""

    def __init__(self, directory: Path, manifest: Manifest, module: nn.Module, made: Made) -> None:
        self._directory, self._manifest, self._module, self._made = directory, manifest, module, made
        self._trains, self._is_cast = module.training, bool(manifest.plan.autocast)
        self._step: PreparedStep | None = None
        # By id: the optimizers that the recommendation was applied to, and those that it did not fit last, with why.
        self._applied: dict[int, ref[Optimizer]] = {}
        self._refused: tuple[list[int], str] = ([], "")
        self._seen: set[Any] = set()
        self._left: Counter[str] = Counter()
        self._told: list[str] = []
        self._trained: Counter[str] = Counter()
        self._is_called = self._is_learned = False
        self._spent, self._seconds, self._first_s = 0.0, 0.0, 0.0

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any], made: Callable[..., Any]) -> Any:
        """Make a call as recommended, or by the module itself."""
        began = time.perf_counter()
        reason = self._reason_against()
        if reason:
            self._left[reason] += 1
        if reason or self._calls_module_directly():
            output = made(self._module, *args, **kwargs)
        else:
            output = self._output(args, kwargs)
        self._is_called = True
        self._spent += time.perf_counter() - began
        return output

    def derived(self, seconds: float) -> None:
        """Note that gradients were computed. They count for the module that was called before."""
        if self._is_called:
            self._spent += seconds
            self._is_called, self._is_learned = False, True

    def begins(self, optimizer: Optimizer) -> None:
        """Note that an optimizer begins a step. The script may have created it since."""
        if self._step is not None and not self._is_applied_to(optimizer) and optimizer in self._own():
            self._apply_to(optimizer)

    def stepped(self, optimizer: Optimizer, seconds: float) -> None:
        """Note that an optimizer has done an update, in `seconds`.

        If it has parameters of the module, this ends a step of the module, unless another optimizer has ended it.
        """
        if self._step is None or not self._is_applied_to(optimizer):
            return
        took, self._spent = self._spent + seconds, 0.0
        if self._is_learned and not self._trained:
            self._first_s = took
        else:
            self._seconds += took
        self._trained[self._step.runtime] += self._is_learned
        self._is_learned = False

    def service(self) -> Service:
        """Return the statistics so far."""
        status, steps = self._step and self._step.status, sum(self._trained.values())
        return Service(
            module=type(self._module).__name__,
            label=status.label if status else "",
            calls=dict(self._trained),
            first_s=self._first_s,
            mean_ms=1e3 * self._seconds / (steps - 1) if steps > 1 else None,
            left=dict(self._left),
            notes=tuple(dict.fromkeys((*self._told, *(status.notes if status else ())))),
            kind=self._manifest.training.kind if self._manifest.training else "training",
        )

    def _own(self) -> list[Optimizer]:
        """Return the optimizers that have parameters of the module, in the order of their creation."""
        own = {id(parameter) for parameter in self._module.parameters()}
        return [one for one in self._made() if any(id(each) in own for each in _held(one))]

    def _is_applied_to(self, optimizer: Optimizer) -> bool:
        known = self._applied.get(id(optimizer))
        return known is not None and known() is optimizer

    def _reason_against(self) -> str:
        """Return why the module itself has to make this call, or ""."""
        if self._module.training != self._trains:
            return _OTHER_MODE
        if peek_interpreter_stack() is not None:
            return _TRANSFORMED
        return "" if self._step is not None else self._prepared()

    def _prepared(self) -> str:
        """Apply the recommendation; return why that is impossible, or "". Its warnings are reported at the end."""
        own = self._own()
        if not own:
            return _NO_OPTIMIZER
        seen = [id(one) for one in own]
        if self._refused[0] == seen:
            return self._refused[1]
        with self._heard(), unwrapped(self._module):
            try:
                self._step = prepare(self._directory, self._module, own[-1], loss=_of_the_script)
            except InvalidWorkload as fault:
                self._refused = seen, str(fault)
                return self._refused[1]
        self._applied[id(own[-1])] = ref(own[-1])
        for other in own[:-1]:
            self._apply_to(other)
        return ""

    def _apply_to(self, optimizer: Optimizer) -> None:
        """Switch another optimizer of the module to the plan's implementation, or note why that is impossible."""
        try:
            problem = apply_to_optimizer(optimizer, self._module, self._manifest.plan, self._told.append)
        except InvalidWorkload as fault:
            problem = fault.fault
        if problem:
            self._told.append(f"one of its optimizers is not changed: {problem}")
        self._applied[id(optimizer)] = ref(optimizer)

    @contextmanager
    def _heard(self) -> Iterator[None]:
        """Collect warnings, to report them at the end."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RuntimeWarning)
            yield
        self._told += dict.fromkeys(str(one.message) for one in caught)

    def _calls_module_directly(self) -> bool:
        """Return whether the plan calls the module itself, uncompiled, with the settings that the script has now."""
        step, has_own = self._step, is_wrapped(self._module) or torch.is_autocast_enabled(self._manifest.device_type)
        is_module = step is not None and not step.compiles and step.model is self._module
        plan = self._manifest.plan
        return is_module and not has_own and not (plan.precision or plan.attention)

    def _output(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        assert self._step is not None
        step = self._step
        key = key_of([args, kwargs]) if step.compiles else None  # traversing the arguments takes a while
        with unwrapped(self._module), self._precision(step):
            if not step.compiles or key in self._seen or len(self._seen) >= _MOST_FORMS:
                output = step.model(*args, **kwargs)
                return _widened(output) if self._is_cast else output
            with self._heard():
                output = step.tried(
                    lambda: step.model(*args, **kwargs), otherwise=lambda: self._module(*args, **kwargs)
                )
            self._seen.add(key)
            return _widened(output) if self._is_cast else output

    def _precision(self, step: PreparedStep) -> AbstractContextManager[Any]:
        """Return a context with the plan's precision, in which the script's own autocast is disabled."""
        device_type = self._manifest.device_type
        if not torch.is_autocast_enabled(device_type):
            return step.autocast()
        return _without_autocast(step, device_type)


@contextmanager
def _without_autocast(step: PreparedStep, device_type: str) -> Iterator[None]:
    with torch.autocast(device_type, enabled=False), step.autocast():
        yield


def _of_the_script(_model: Any, _batch: Any) -> torch.Tensor:
    raise AssertionError("the script computes its loss itself")


def _held(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _widened(output: Any) -> Any:
    """Convert half precision outputs of autocast to single precision; objects unknown to torch are copied for that."""
    if not any(one.dtype in _HALF for one in tensors_of(output)):
        return output
    return pytree.tree_map(_wide, output)


def _wide(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.float() if leaf.dtype in _HALF else leaf
    if next(tensors_of(leaf), None) is None:
        return leaf
    if isinstance(leaf, dict):
        leaf = copy.copy(leaf)
        leaf.update({name: _widened(value) for name, value in leaf.items()})
        return leaf
    leaf = copy.copy(leaf)
    vars(leaf).update({name: _widened(value) for name, value in vars(leaf).items()})
    return leaf
