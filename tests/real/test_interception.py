"""A mode that intercepts operators: where it is among a script's own modes, when it is paused, and when it is left."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from autocompile.workload.watching.learning.interception import Interception


class Counting(Interception):
    """Count the operators that are intercepted."""

    def __init__(self):
        super().__init__()
        self.seen = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen += 1
        return func(*args, **(kwargs or {}))


class Own(TorchFunctionMode):
    """A mode of the script."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@pytest.fixture
def mode():
    counting = Counting()
    yield counting
    counting.leave()
    assert _get_current_function_mode_stack() == []


def test_it_intercepts_between_joining_and_leaving(mode):
    torch.ones(2)
    assert mode.seen == 0
    mode.join()
    mode.join()
    torch.ones(2)
    assert mode.seen == 1
    assert mode.is_active()
    mode.leave()
    mode.join()
    torch.ones(2)
    assert mode.seen == 1
    assert not mode.is_active()


def test_it_joins_below_the_modes_of_the_script_and_stays_when_they_are_left(mode):
    with Own() as own, torch.device("meta"):
        mode.join()
        assert _get_current_function_mode_stack()[:2] == [mode, own]
        assert torch.ones(2).device.type == "meta"
    assert _get_current_function_mode_stack() == [mode]


def test_it_joins_within_a_default_device(mode):
    torch.set_default_device("meta")
    try:
        mode.join()
        of_torch, joined = _get_current_function_mode_stack()
        assert isinstance(of_torch, DeviceContext)
        assert joined is mode
        assert torch.ones(2).device.type == "meta"
    finally:
        torch.set_default_device(None)
    assert mode.seen
    assert _get_current_function_mode_stack() == [mode]


def test_nothing_is_intercepted_in_a_pause_whatever_is_above_it(mode):
    mode.join()
    with Own() as own:
        with mode.paused(), mode.paused():
            torch.ones(2)
            assert not mode.is_active()
        assert _get_current_function_mode_stack() == [mode, own]
    assert mode.seen == 0
    torch.ones(2)
    assert mode.seen == 1


def test_it_joins_in_a_pause_and_begins_after_it(mode):
    with mode.paused():
        mode.join()
        assert not mode.is_active()
    assert mode.is_active()


def test_it_does_not_come_back_if_it_was_left_in_a_pause(mode):
    mode.join()
    with mode.paused():
        mode.leave()
    assert _get_current_function_mode_stack() == []


def test_a_mode_that_the_script_has_not_left_remains(mode):
    mode.join()
    own = Own()
    own.__enter__()
    mode.leave()
    assert _get_current_function_mode_stack() == [own]
    own.__exit__(None, None, None)


def test_a_pause_in_another_thread_changes_nothing_here(mode):
    mode.join()
    pause = mode.paused()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(pause.__enter__).result()
        assert mode.is_active()
        torch.ones(2)
        assert mode.seen == 1
        pool.submit(pause.__exit__, None, None, None).result()
    assert mode.is_active()


def test_it_joins_in_each_thread_that_asks(mode):
    with ThreadPoolExecutor(1) as pool:
        pool.submit(mode.join).result()
        pool.submit(torch.ones, 2).result()
        assert mode.seen == 1
        assert mode.has_begun
        assert not mode.is_active()
        torch.ones(2)
        assert mode.seen == 1
        mode.join()
        assert mode.is_active()
        torch.ones(2)
        assert mode.seen == 2
        mode.leave()
        assert not pool.submit(mode.is_active).result()


def test_it_does_not_join_in_a_backward_pass(mode):
    weight = torch.ones(2, requires_grad=True)
    weight.register_hook(lambda _gradient: mode.join())
    weight.sum().backward()
    assert not mode.has_begun


def test_after_a_pause_torchs_default_device_is_still_below_it(mode):
    mode.join()
    try:
        with mode.paused():
            torch.set_default_device("meta")
        assert isinstance(_get_current_function_mode_stack()[0], DeviceContext)
        torch.set_default_device("cpu")
    finally:
        torch.set_default_device(None)
    assert _get_current_function_mode_stack() == [mode]
