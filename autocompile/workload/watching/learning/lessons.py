"""The training steps that a script does, by the module that they train."""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from autocompile.core.errors import InvalidWorkload
from autocompile.workload.training.recipe import Recipe, recipe_of, stateless_recipe_of
from autocompile.workload.watching.learning.recorder import MOST_BYTES, STANDS_FOR, Recorder
from autocompile.workload.watching.learning.tape import Constants, NotRecorded, Round, round_of
from autocompile.workload.watching.updates import timed_updates

# So many steps of a module are recorded.
_MOST_STEPS = 32
_WRAPPED = (
    "the script has put a wrapper in the place of its forward(), as accelerate does for mixed precision, which is not "
    "seen; have the script train in full precision while it is tuned, as the recommendation has its own"
)


_CLIPPED = "it clips gradients of a part of the parameters, or not by their norm, which is not tuned"
_SCALED = "it scales its loss by a GradScaler, which is not tuned; use bfloat16, which needs none"


@dataclass(frozen=True)
class Start:
    """A module and its optimizer before a step; `after`: its parameters and buffers after it, by name."""

    module: nn.Module
    recipe: Recipe
    after: dict[str, torch.Tensor]


@dataclass
class Lesson:
    """What is known of the training of one module.

    `steps` of its `optimizer` were done, of which `recorded` hold the rounds; `first` is the number of the one that
    begins at `start`; `constants` are as they were in that one. `clip_norms`: to what norms gradients were clipped,
    None where they were not. `seconds`: what the optimizer and the backward passes took. `problem`: why its steps
    cannot be done again, or "". Of the step that is under way: its `rounds`, whether the module `is_called`, and what
    is `pending` to be its start.
    """

    module: nn.Module
    optimizer: Optimizer | None = None
    steps: int = 0
    seconds: float = 0.0
    recorded: list[tuple[Round, ...]] = field(default_factory=list)
    clip_norms: Counter[float | None] = field(default_factory=Counter)
    start: Start | None = None
    first: int = 0
    problem: str = ""
    rounds: list[Round] = field(default_factory=list)
    constants: Constants = field(default_factory=Constants)
    pending: tuple[nn.Module, Recipe] | None = None
    is_called: bool = False

    def take(self, made: Round) -> None:
        """Keep what led to a loss. Raises NotRecorded where another one came of the same call of the module."""
        if any(made.calls & before.calls for before in self.rounds):
            raise NotRecorded("several losses come of one call of the model; add them up, and call backward() once")
        self.rounds.append(made)


class Lessons:
    """All of them; told of calls, losses and steps as they come."""

    def __init__(self) -> None:
        self.of: dict[int, Lesson] = {}
        self.derived = 0
        self._recorder = Recorder()
        self._clipped: float | None = None
        self._derived_s = 0.0
        self._held_bytes = 0

    @property
    def stepped(self) -> tuple[Lesson, ...]:
        """Those in which an optimizer did a step."""
        return tuple(one for one in self.of.values() if one.steps)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Record what happens within."""
        with ExitStack() as stack:
            stack.enter_context(timed_updates(self._stepped, self._steps))
            stack.enter_context(self._in_place_of(torch.autograd, "backward", self._backward))
            stack.enter_context(self._in_place_of(torch.autograd, "grad", self._grad))
            for owner in (nn.utils.clip_grad, nn.utils):
                stack.enter_context(self._in_place_of(owner, "clip_grad_norm_", self._clips))
                stack.enter_context(self._in_place_of(owner, "clip_grad_value_", self._clips_values))
            stack.enter_context(self._in_place_of(torch.amp.GradScaler, "scale", self._scales))
            stack.enter_context(self._recorder)
            yield

    def called(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], make: Callable[..., Any]) -> Any:
        """Make a call of a module with gradients."""
        recorder = self._recorder
        own = getattr(module, "_orig_mod", module)
        learns = any(parameter.requires_grad for parameter in own.parameters())
        if not recorder.is_seeing() or not learns or recorder.follows_another(own, args, kwargs):
            return make(module, *args, **kwargs)
        lesson = self.of.setdefault(id(own), Lesson(own))
        if lesson.optimizer is not None and lesson.start is None and lesson.pending is None and not lesson.problem:
            self._begin(lesson)
        lesson.is_called = True
        return recorder.called(own, args, kwargs, lambda _own, *args, **kwargs: make(module, *args, **kwargs))

    def _begin(self, lesson: Lesson) -> None:
        """Keep how all is before a step."""
        assert lesson.optimizer is not None
        if hasattr(vars(lesson.module).get("forward"), "__wrapped__"):
            lesson.problem = _WRAPPED
            return
        try:
            with self._recorder.paused():
                recipe = recipe_of(lesson.optimizer, dict(lesson.module.named_parameters()))
                lesson.pending = copy.deepcopy(lesson.module), recipe
        except InvalidWorkload as fault:
            lesson.problem = fault.fault
        except Exception as fault:  # whatever a user's object makes of being copied
            lesson.problem = f"the model cannot be copied: {type(fault).__name__}: {fault}".split("\n", maxsplit=1)[0]
        lesson.first, lesson.rounds, lesson.constants = len(lesson.recorded), [], Constants()

    def _backward(self, make: Callable[..., Any], tensors: Any, *args: Any, **kwargs: Any) -> Any:
        self.derived += 1
        roots = (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors)
        if self._recorder.records:
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
        """Keep what led to a loss, for the module that it is of."""
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

    def _scales(self, make: Callable[..., Any], scaler: Any, *args: Any, **options: Any) -> Any:
        for lesson in self.of.values():
            if lesson.is_called and scaler.is_enabled():
                lesson.problem = lesson.problem or _SCALED
        return make(scaler, *args, **options)

    def _steps(self, optimizer: Optimizer) -> None:
        """A step begins, with the settings that the optimizer has now."""
        for lesson in self.of.values():
            if lesson.pending is not None and lesson.optimizer is optimizer:
                module, recipe = lesson.pending
                now = stateless_recipe_of(optimizer, dict(lesson.module.named_parameters()))
                lesson.pending = module, replace(now, state=recipe.state)

    def _stepped(self, optimizer: Optimizer, seconds: float) -> None:
        """A step was done, its update in so many seconds: those of the modules that it trains are over."""
        held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        trained = [one for one in self.of.values() if any(id(each) in held for each in one.module.parameters())]
        took, clipped = self._derived_s + seconds, self._clipped
        self._derived_s, self._clipped = 0.0, None
        for lesson in trained:
            lesson.optimizer = optimizer
            lesson.steps += 1
            lesson.seconds += took / len(trained)
            if self._recorder.records:
                lesson.clip_norms[clipped] += 1
                self._recorded(lesson)
        if self._is_enough():
            self._recorder.forget()

    def _recorded(self, lesson: Lesson) -> None:
        if lesson.pending is not None and lesson.rounds:
            module, recipe = lesson.pending
            with self._recorder.paused():
                held = (*lesson.module.named_parameters(), *lesson.module.named_buffers())
                after = {name: one.detach().clone() for name, one in held}
            lesson.start, lesson.pending = Start(module, recipe, after), None
        if lesson.rounds:
            lesson.recorded.append(tuple(lesson.rounds))
            self._held_bytes += sum(one.size for one in lesson.rounds)
        lesson.rounds, lesson.is_called = [], False

    def _is_enough(self) -> bool:
        most = max((len(one.recorded) for one in self.of.values()), default=0)
        return self._recorder.records and (most >= _MOST_STEPS or self._held_bytes > MOST_BYTES)

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
