"""Ctrl-C is never lost, and the previous handler is restored."""

import signal
import threading
import weakref

import pytest

from autocompile.cli.stopping import Stopping
from autocompile.runner.interrupts import Interrupts


class Something:
    pass


def press_ctrl_c():
    """What Python does when the signal has come.

    No signal is sent: libraries that other tests have used in this process may have left it unable to take any.
    """
    signal.getsignal(signal.SIGINT)(signal.SIGINT, None)


@pytest.fixture(autouse=True)
def handler():
    """Python's own, whatever a runner that other tests share has put in its place."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def interrupts():
    found = Interrupts()
    found.install()
    yield found
    found.uninstall()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_one_that_python_drops_is_raised_later(interrupts, recwarn):
    something = Something()
    reference = weakref.ref(something, lambda _reference: press_ctrl_c())
    del something  # what the callback raises is ignored
    assert reference() is None
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()


def test_one_is_raised_at_once_as_usual(interrupts):
    with pytest.raises(KeyboardInterrupt):
        press_ctrl_c()


def test_without_any_nothing_is_raised(interrupts):
    interrupts.check()


def test_another_handler_and_another_thread_are_left_alone():
    def own(_number, _frame):
        pass

    signal.signal(signal.SIGINT, own)
    found = Interrupts()
    found.install()
    assert signal.getsignal(signal.SIGINT) is own
    found.uninstall()
    assert signal.getsignal(signal.SIGINT) is own
    signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=Interrupts().install)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.fixture
def stopping():
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    found = Stopping()
    found.install()
    yield found
    signal.signal(signal.SIGTERM, before)


def test_sigterm_stops_as_ctrl_c_does_and_is_not_lost_either(interrupts, stopping):
    assert stopping.status == 130
    with pytest.raises(KeyboardInterrupt):
        signal.getsignal(signal.SIGTERM)(signal.SIGTERM, None)
    assert stopping.status == 143
    with pytest.raises(KeyboardInterrupt):
        interrupts.check()


def test_sigterm_stops_also_where_ctrl_c_is_ignored(stopping):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with pytest.raises(KeyboardInterrupt):
        signal.getsignal(signal.SIGTERM)(signal.SIGTERM, None)


def test_a_handler_of_sigterm_that_is_there_already_stays():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Stopping().install()
    assert signal.signal(signal.SIGTERM, before) is signal.SIG_IGN
