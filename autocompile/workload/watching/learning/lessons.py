"""Record the training steps that a script does, by the module that they train."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from autocompile.core.errors import InvalidWorkload
from autocompile.workload.copying import copied
from autocompile.workload.outermost import uncompiled
from autocompile.workload.own_autocast import is_wrapped_otherwise, unwrap
from autocompile.workload.training.recipe import recipe_of, stateless_recipe_of
from autocompile.workload.watching.learning.lesson import Lesson, Start, gradients_of
from autocompile.workload.watching.learning.recorder import MOST_BYTES, STANDS_FOR, Recorder
from autocompile.workload.watching.learning.tape import Constants, NotRecorded, round_of
from autocompile.workload.watching.updates import timed_updates

# The maximum number of recorded steps of a module.
_MOST_STEPS = 32
_WRAPPED = "the script has replaced its forward() by a function that cannot be recorded; write it into the class"
_CLIPPED = "it clips the gradients of only some parameters, or not by their norm, which is not supported"
_SCALED = "it scales several losses at once with a GradScaler; scale their sum, and call backward() once"


class Lessons:
    """All lessons of a script, updated with each call, loss and step.

    `derived` counts computations of gradients, and `unseen` the steps of optimizers that train none of the modules
    whose calls were seen.
    """

    def __init__(self) -> None:
        self.of: dict[int, Lesson] = {}
        self.derived = self.unseen = 0
        self._recorder = Recorder()
        self._clipped: float | None = None
        self._derived_s = 0.0
        self._held_bytes = 0

    @property
    def stepped(self) -> tuple[Lesson, ...]:
        """The lessons in which an optimizer did a step."""
        return tuple(one for one in self.of.values() if one.steps)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Record what happens within the context."""
        with ExitStack() as stack:
            stack.enter_context(timed_updates(self._stepped, self._steps))
            stack.enter_context(self._in_place_of(torch.autograd, "backward", self._backward))
            stack.enter_context(self._in_place_of(torch.autograd, "grad", self._grad))
            for owner in (nn.utils.clip_grad, nn.utils):
                stack.enter_context(self._in_place_of(owner, "clip_grad_norm_", self._clips))
                stack.enter_context(self._in_place_of(owner, "clip_grad_value_", self._clips_values))
            stack.enter_context(self._in_place_of(torch.amp.GradScaler, "scale", self._scales))
            stack.enter_context(self._in_place_of(torch.amp.GradScaler, "step", self._steps_scaled))
            for creates in ("__init__", "__setstate__"):  # the latter if it is unpickled or copied
                stack.enter_context(self._in_place_of(Optimizer, creates, self._creates))
            stack.callback(self._recorder.leave)
            yield

    def paused(self) -> AbstractContextManager[None]:
        """Record nothing within the context. Operators are not even intercepted there, which takes time."""
        return self._recorder.paused()

    def called(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], make: Callable[..., Any]) -> Any:
        """Make a call of a module with gradients."""
        recorder = self._recorder
        if recorder.has_begun:  # the optimizer may have been created in another thread
            recorder.join()
        own = uncompiled(module)
        learns = any(parameter.requires_grad for parameter in own.parameters())
        if not recorder.is_seeing() or not learns or recorder.follows_another(own, args, kwargs):
            return make(module, *args, **kwargs)
        lesson = self.of.setdefault(id(own), Lesson(own))
        if lesson.optimizer is not None and lesson.start is None and lesson.pending is None and not lesson.problem:
            self._begin(lesson)
        lesson.is_called = True
        return recorder.called(own, args, kwargs, lambda _own, *args, **kwargs: make(module, *args, **kwargs))

    def _creates(self, make: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """Begin to record when an optimizer is created. Intercepting takes time, and most scripts do not train."""
        make(*args, **kwargs)
        self._recorder.join()

    def _begin(self, lesson: Lesson) -> None:
        """Copy the module and the optimizer's recipe before a step."""
        assert lesson.optimizer is not None
        if is_wrapped_otherwise(lesson.module):
            lesson.problem = _WRAPPED
            return
        try:
            with self._recorder.paused():
                recipe = recipe_of(lesson.optimizer, dict(lesson.module.named_parameters()))
                module = copied(lesson.module)
                unwrap(module)
                lesson.pending = module, recipe
        except InvalidWorkload as fault:
            lesson.problem = fault.fault
        except Exception as fault:  # copying a user's object may raise anything
            lesson.problem = f"the model cannot be copied: {type(fault).__name__}: {fault}".split("\n", maxsplit=1)[0]
        lesson.first, lesson.rounds, lesson.constants = len(lesson.recorded), [], Constants()

    def _backward(self, make: Callable[..., Any], tensors: Any, *args: Any, **kwargs: Any) -> Any:
        self.derived += 1
        roots = (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors)
        if self._recorder.is_active():
            self._take(roots)
        began = time.perf_counter()
        with self._recorder.paused():
            made = make(tensors, *args, **kwargs)
        self._derived_s += time.perf_counter() - began
        return made

    def _grad(self, make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.derived += 1
        return make(*args, **kwargs)

    def _take(self, roots: tuple[torch.Tensor, ...]) -> None:
        """Keep what led to a loss, in the lesson of its module."""
        try:
            with self._recorder.paused():
                made = round_of(self._recorder, roots, lambda subject: self.of[id(subject)].constants)
            lesson = self.of[id(made.subject)]
            lesson.take(made)
        except NotRecorded as fault:
            for lesson in self.of.values():
                if lesson.is_called:
                    lesson.problem = lesson.problem or str(fault)

    def _clips(
        self, make: Callable[..., Any], parameters: Any, max_norm: float, norm_type: float = 2.0, **options: Any
    ) -> Any:
        held = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        self._clipped = float(max_norm)
        own = {id(parameter) for parameter in held}
        for lesson in self.of.values():
            learning = [parameter for parameter in lesson.module.parameters() if parameter.requires_grad]
            clipped = sum(id(parameter) in own for parameter in learning)
            if clipped and (clipped < len(learning) or float(norm_type) != 2.0):
                lesson.problem = lesson.problem or _CLIPPED
        with self._recorder.paused():
            return make(held, max_norm, norm_type, **options)

    def _clips_values(self, make: Callable[..., Any], *args: Any, **options: Any) -> Any:
        for lesson in self.of.values():
            if lesson.is_called:
                lesson.problem = lesson.problem or _CLIPPED
        with self._recorder.paused():
            return make(*args, **options)

    def _scales(self, make: Callable[..., Any], scaler: Any, outputs: Any) -> Any:
        """Record that a scaler multiplies a loss by a factor. The gradients are divided by it before they are used."""
        if not scaler.is_enabled():
            return make(scaler, outputs)
        with self._recorder.paused():
            made = make(scaler, outputs)
        for lesson in self.of.values():
            if lesson.is_called:
                lesson.is_scaled = True
                lesson.problem = lesson.problem or ("" if isinstance(made, torch.Tensor) else _SCALED)
        if isinstance(made, torch.Tensor):
            self._recorder.scaled(outputs, made, scaler.get_scale())
        return made

    def _steps_scaled(
        self, make: Callable[..., Any], scaler: Any, optimizer: Optimizer, *args: Any, **options: Any
    ) -> Any:
        """Ignore a step that the scaler skips because gradients are not finite."""
        before = [lesson.steps for lesson in self.of.values()]
        made = make(scaler, optimizer, *args, **options)
        if before == [lesson.steps for lesson in self.of.values()]:
            self._leave_out(optimizer)
        return made

    def _leave_out(self, optimizer: Optimizer) -> None:
        self._clipped = None
        for lesson in self._trained_by(optimizer):
            lesson.forget_step()

    def _steps(self, optimizer: Optimizer) -> None:
        """Take the optimizer's settings at the beginning of a step."""
        for lesson in self.of.values():
            if lesson.pending is not None and lesson.optimizer is optimizer:
                module, recipe = lesson.pending
                now = stateless_recipe_of(optimizer, dict(lesson.module.named_parameters()))
                lesson.pending = module, replace(now, state=recipe.state)

    def _stepped(self, optimizer: Optimizer, seconds: float) -> None:
        """Record a step, whose update took this many seconds, for the modules that the optimizer trains."""
        if float(getattr(optimizer, "found_inf", 0.0)):  # a scaler has told a fused optimizer to do nothing
            self._leave_out(optimizer)
            return
        trained = self._trained_by(optimizer)
        self.unseen += not trained
        took, clipped = self._derived_s + seconds, self._clipped
        self._derived_s, self._clipped = 0.0, None
        for lesson in trained:
            lesson.optimizer = optimizer
            lesson.steps += 1
            lesson.seconds += took / len(trained)
            if not self._recorder.is_over:
                lesson.clip_norms[clipped] += 1
                self._recorded(lesson)
        if self._is_enough():
            self._recorder.forget()

    def _trained_by(self, optimizer: Optimizer) -> list[Lesson]:
        held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        return [one for one in self.of.values() if any(id(each) in held for each in one.module.parameters())]

    def _recorded(self, lesson: Lesson) -> None:
        if lesson.pending is not None and lesson.rounds:
            module, recipe = lesson.pending
            with self._recorder.paused():
                held = (*lesson.module.named_parameters(), *lesson.module.named_buffers())
                after = {name: one.detach().clone() for name, one in held}
                gradients = gradients_of(lesson.module) if recipe.by_closure else {}
            lesson.start, lesson.pending = Start(module, recipe, after, gradients), None
        if lesson.rounds:
            lesson.recorded.append(tuple(lesson.rounds))
            self._held_bytes += sum(one.size for one in lesson.rounds)
        lesson.rounds, lesson.is_called = [], False

    def _is_enough(self) -> bool:
        most = max((len(one.recorded) for one in self.of.values()), default=0)
        return not self._recorder.is_over and (most >= _MOST_STEPS or self._held_bytes > MOST_BYTES)

    @contextmanager
    def _in_place_of(self, owner: Any, name: str, passed: Callable[..., Any]) -> Iterator[None]:
        before = getattr(owner, name)

        def passing(*args: Any, **kwargs: Any) -> Any:
            return passed(before, *args, **kwargs)

        vars(passing)[STANDS_FOR] = before
        setattr(owner, name, passing)
        try:
            yield
        finally:
            setattr(owner, name, before)
