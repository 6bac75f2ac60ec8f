"""Put a mode below those on torch's stack of function modes, and remove it from wherever it is on the stack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.overrides import TorchFunctionMode, _get_current_function_mode, _pop_mode, _push_mode
from torch.utils._device import DeviceContext


def put_below(mode: TorchFunctionMode) -> None:
    """Enter a mode below those that are active in this thread, which will be left before it."""
    active = _taken_off()
    at_bottom = sum(isinstance(one, DeviceContext) for one in active[:1])  # torch requires this one to be there
    _put_on([*active[:at_bottom], mode, *active[at_bottom:]])


def remove(mode: TorchFunctionMode) -> None:
    """Leave a mode, wherever it is on this thread's stack. Do nothing if it is not there."""
    _put_on([one for one in _taken_off() if one is not mode])


def _taken_off() -> list[Any]:
    """Take all modes off the stack, and return them from the bottom to the top."""
    modes = []
    while _get_current_function_mode() is not None:  # type: ignore[no-untyped-call]
        modes.append(_pop_mode())  # type: ignore[no-untyped-call]
    return modes[::-1]


def _put_on(modes: Sequence[Any]) -> None:
    for mode in modes:
        _push_mode(mode)  # type: ignore[no-untyped-call]
