"""A mode of torch that intercepts operators, and can be entered late, paused and left, wherever it is on the stack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import local
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode, _pop_mode, _push_mode
from torch.utils._device import DeviceContext


class _Here(local):
    """What differs by thread: whether it has joined, and in how many pauses it is."""

    has_joined = False
    pauses = 0


class Interception(TorchFunctionMode):
    """Intercepts operators from `join` to `leave`, in the threads that called `join`, except in pauses.

    A script may have entered modes of its own before, or not have left them when it ends. `has_begun` tells whether any
    thread has joined.
    """

    def __init__(self) -> None:
        super().__init__()
        self._here = _Here()
        self.has_begun = self.is_over = False

    def join(self) -> None:
        """Enter this mode as if it had been entered before all others that are active in this thread.

        Autograd's own threads do not join: there, operators belong to a backward pass.
        """
        if self._here.has_joined or self.is_over or _is_in_backward_pass():
            return
        self.has_begun = self._here.has_joined = True
        _put_at(0, self)

    def leave(self) -> None:
        """Stop for good. In other threads, and while it handles an operator, the mode stays but does nothing."""
        self.is_over = True
        _taken_from_stack(self)

    def is_active(self) -> bool:
        """Return whether it has joined in this thread, is not paused there, and is not over."""
        return self._here.has_joined and not self.is_over and not self._here.pauses

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Intercept nothing within the context."""
        place = _taken_from_stack(self) if self._here.has_joined else None
        self._here.pauses += 1
        try:
            yield
        finally:
            self._here.pauses -= 1
            if place is not None and not self.is_over:
                _put_at(place, self)


def _is_in_backward_pass() -> bool:
    return torch._C._current_graph_task_id() != -1  # noqa: SLF001  torch has no public way


def _put_at(place: int, mode: TorchFunctionMode) -> None:
    """Put a mode on this thread's stack at a place from the bottom, but above torch's default device."""
    modes = _taken_off()
    place = max(place, sum(isinstance(one, DeviceContext) for one in modes[:1]))
    _put_on([*modes[:place], mode, *modes[place:]])


def _taken_from_stack(mode: TorchFunctionMode) -> int | None:
    """Take a mode from this thread's stack; return its place from the bottom, or None if it is not there."""
    modes = _taken_off()
    place = next((number for number, one in enumerate(modes) if one is mode), None)
    _put_on([one for one in modes if one is not mode])
    return place


def _taken_off() -> list[Any]:
    """Take all modes off this thread's stack; return them from the bottom to the top."""
    modes = []
    while _get_current_function_mode() is not None:  # type: ignore[no-untyped-call]
        modes.append(_pop_mode())  # type: ignore[no-untyped-call]
    return modes[::-1]


def _put_on(modes: Sequence[Any]) -> None:
    for mode in modes:
        _push_mode(mode)  # type: ignore[no-untyped-call]
