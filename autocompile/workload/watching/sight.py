"""Watch what a running script does with modules, and decide when enough was seen."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

import torch
from torch import nn

from autocompile.core.job import Watching
from autocompile.workload.generating.generations import Generations
from autocompile.workload.outermost import LOOK_INSIDE, only_inner_calls_count, outermost_calls, uncompiled
from autocompile.workload.own_autocast import own_autocast
from autocompile.workload.spans import when_done
from autocompile.workload.watching.functions import WatchedFunction
from autocompile.workload.watching.learning.lessons import Lessons
from autocompile.workload.watching.loaders import WatchedLoaders
from autocompile.workload.watching.tally import Tally

# How long a call may continue after the time is over.
_GRACE_S = 2.0


class EnoughSeen(BaseException):
    """Ends a watched script. Not an Exception, so that the script's `except Exception` does not catch it."""


class Sight:
    """The calls of each module, with and without gradients, its `lessons` (training steps) and the texts it generated.

    `began` is when the first module was called, on `time.perf_counter`, or None before that. `ended` tells whether
    autocompile ended the script because enough was seen, even if the script caught that.
    """

    def __init__(self, watching: Watching) -> None:
        self._watching = watching
        self.tallies: dict[tuple[int, bool], Tally] = {}
        self.lessons = Lessons()
        self.generations = Generations(self.lessons.paused)
        self.loaders = WatchedLoaders()
        self.ended = False
        self.began: float | None = None
        self.function = WatchedFunction(watching.function, self) if watching.function else None

    @contextmanager
    def open(self) -> Iterator[None]:
        """Watch what happens within the context."""
        with ExitStack() as stack:
            watches = (self.lessons.open(), self.generations.open(), self.loaders.open(), self._alarm())
            for one in (outermost_calls(self._called), *watches):
                stack.enter_context(one)
            if self.function is not None:
                stack.enter_context(self.function.open())
            yield

    @property
    def learns(self) -> bool:
        """Whether the script computes gradients, for an optimizer or otherwise."""
        return bool(self.lessons.stepped or self.lessons.derived)

    def looks(self) -> None:
        """Record that something is called. Raises EnoughSeen if that is enough."""
        now = time.perf_counter()
        self.began = self.began or now
        if self._is_enough(now):
            self._end()

    def _called(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], made: Callable[..., Any]
    ) -> Any:
        if self.function is not None and self.function.is_inside:
            return made(module, *args, **kwargs)
        self.looks()
        self.loaders.called(uncompiled(module))
        if next(module.parameters(), None) is None:
            return made(module, *args, **kwargs)
        generated = self.generations.current(module)
        if generated is not None:
            return generated.called(args, kwargs, made)
        if only_inner_calls_count(args, kwargs):
            return LOOK_INSIDE
        tally = self._tally_of(module)
        tally.keep(args, kwargs)
        began = when_done()
        try:
            if torch.is_grad_enabled():
                return self.lessons.called(module, args, kwargs, made)
            with self.lessons.paused():
                return made(module, *args, **kwargs)
        finally:
            tally.seconds += when_done() - began

    def _tally_of(self, module: nn.Module) -> Tally:
        own, learns = uncompiled(module), torch.is_grad_enabled()
        tally = self.tallies.setdefault((id(own), learns), Tally(own))
        tally.is_compiled = own is not module
        tally.trains = module.training
        kind = next(tensor.device.type for tensor in (*own.parameters(), torch.empty(0)))
        around = str(torch.get_autocast_dtype(kind)).removeprefix("torch.") if torch.is_autocast_enabled(kind) else ""
        tally.autocast = own_autocast(own) or around or tally.autocast
        return tally

    def _is_enough(self, now: float) -> bool:
        assert self.began is not None
        if now - self.began > self._watching.seconds:
            return True
        if self.function is not None:
            return self.function.calls >= self._watching.calls
        calls = [tally.calls for tally in self.tallies.values()]
        most = max(calls + [generated.steps for generated in self.generations.seen], default=0)
        return most >= self._watching.calls

    def _end(self) -> None:
        self.ended = True
        raise EnoughSeen

    @contextmanager
    def _alarm(self) -> Iterator[None]:
        """Check once a second whether the time is over, because a script may wait without any call.

        Main thread only.
        """

        def look(_number: int, _frame: FrameType | None) -> None:
            if self.began is not None and time.perf_counter() - self.began > self._watching.seconds + _GRACE_S:
                self._end()

        before = signal.signal(signal.SIGALRM, look)
        signal.setitimer(signal.ITIMER_REAL, 1.0, 1.0)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)
