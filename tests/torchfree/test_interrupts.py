"""Ctrl-C is never lost, and the previous handler is restored."""

import signal
import threading
import weakref

import pytest
from optuna.storages import InMemoryStorage

from autocompile.cli.stopping import Stopping
from autocompile.interrupts import Interrupts, uninterrupted
from autocompile.search.study.kept import KeptStudy


class Something:
    pass


def press_ctrl_c(number=signal.SIGINT):
    """What Python does when the signal has come.

    No signal is sent: libraries that other tests have used in this process may have left it unable to take any.
    """
    signal.getsignal(number)(number, None)


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


def pressed_in_a_block(times, done, number=signal.SIGINT):
    with uninterrupted():
        with uninterrupted():
            for _ in range(times):
                press_ctrl_c(number)
            done.append("inner")
        done.append("outer")


def test_one_that_comes_within_an_uninterrupted_block_is_raised_at_its_end(interrupts):
    done = []
    with pytest.raises(KeyboardInterrupt):
        pressed_in_a_block(1, done)
    assert done == ["inner", "outer"]
    pressed_in_a_block(0, done)  # it is raised once; `check` still knows of it
    with pytest.raises(KeyboardInterrupt):
        interrupts.check()


def test_a_second_one_does_not_wait(interrupts):
    done = []
    with pytest.raises(KeyboardInterrupt):
        pressed_in_a_block(2, done)
    assert not done
    pressed_in_a_block(0, done)


def test_another_thread_postpones_nothing(interrupts):
    entered, over = threading.Event(), threading.Event()

    def block():
        with uninterrupted():
            entered.set()
            over.wait()

    thread = threading.Thread(target=block)
    thread.start()
    entered.wait()
    try:
        with pytest.raises(KeyboardInterrupt):
            press_ctrl_c()
    finally:
        over.set()
        thread.join()


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


def test_sigterm_waits_for_the_end_of_an_uninterrupted_block_too(interrupts, stopping):
    done = []
    with pytest.raises(KeyboardInterrupt):
        pressed_in_a_block(1, done, signal.SIGTERM)
    assert done == ["inner", "outer"]


def test_sigterm_stops_also_where_ctrl_c_is_ignored(stopping):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with pytest.raises(KeyboardInterrupt):
        signal.getsignal(signal.SIGTERM)(signal.SIGTERM, None)


def test_a_handler_of_sigterm_that_is_there_already_stays():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Stopping().install()
    assert signal.signal(signal.SIGTERM, before) is signal.SIG_IGN


class Pressing(InMemoryStorage):
    """A storage in which Ctrl-C comes in the middle of a write."""

    def set_study_user_attr(self, study_id, key, value):
        press_ctrl_c()
        super().set_study_user_attr(study_id, key, value)


def test_a_statement_of_the_storage_is_not_interrupted(interrupts):
    kept = KeptStudy("study", Pressing(), None)
    with pytest.raises(KeyboardInterrupt):
        kept.write("name", "value")
    assert kept.attributes() == {"name": "value"}
