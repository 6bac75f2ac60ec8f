"""The runs at work on a study: their records on a board, and a separate clock for each reader."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from fakes import FakeClock

from autocompile.search.study import presence
from autocompile.search.study.presence import Presence


class FakeBoard:
    """The attributes of a study; while `down`, nobody reaches it."""

    def __init__(self):
        self.kept, self.down = {}, False

    def attributes(self, *, patient=True):
        self.answer()
        return dict(self.kept)

    def write(self, name, value, *, patient=True):
        self.answer()
        self.kept[name] = value

    def answer(self):
        if self.down:
            raise ConnectionError("the database does not answer")


@pytest.fixture
def board():
    return FakeBoard()


def joins(board, monkeypatch, node, clock=None):
    """A run on another machine than all others."""
    monkeypatch.setattr(presence, "_node", lambda: node)
    return Presence(board, beat_s=10.0, limit_s=60.0, clock=clock or FakeClock())


def test_what_one_holds_no_other_gets(board, monkeypatch):
    one, other = joins(board, monkeypatch, "a"), joins(board, monkeypatch, "b")
    assert one.take("plan x", "about it")
    assert not other.take("plan x")
    assert [record.held for record in other.others().values()] == [{"plan x": "about it"}]
    one.drop("plan x")
    assert other.take("plan x")


def test_of_many_who_want_the_same_at_once_none_gets_it_beside_another(board, monkeypatch):
    runs = [joins(board, monkeypatch, str(number)) for number in range(6)]
    together, holders, most = threading.Barrier(len(runs)), [], []

    def wants(run):
        together.wait()
        for _ in range(200):
            if run.take("final 3"):
                holders.append(run)
                most.append(len(holders))
                holders.remove(run)
                run.drop("final 3")
                return True
        return False

    with ThreadPoolExecutor(len(runs)) as pool:
        assert all(pool.map(wants, runs)), "each has its turn"
    assert max(most) == 1


def test_a_run_that_is_silent_for_the_limit_is_gone_and_what_it_held_is_open(board, monkeypatch):
    clock = FakeClock()
    one, other = joins(board, monkeypatch, "a"), joins(board, monkeypatch, "b", clock)
    one.take("plan x")
    for _ in range(7):
        assert not other.take("plan x")
        clock.now += 10.0
    assert other.take("plan x")


def test_a_run_that_beats_lives_on_however_its_clock_goes(board, monkeypatch):
    clocks = FakeClock(), FakeClock()
    clocks[0].now = 1e9
    one, other = (joins(board, monkeypatch, node, clock) for node, clock in zip("ab", clocks, strict=True))
    one.take("plan x")
    for _ in range(50):
        clocks[1].now += 50.0
        clocks[0].now -= 7.0
        one.beat()
        assert not other.take("plan x")


def test_while_nobody_reaches_the_board_nobody_is_taken_to_be_gone(board, monkeypatch):
    clock = FakeClock()
    one, other = joins(board, monkeypatch, "a"), joins(board, monkeypatch, "b", clock)
    one.take("plan x")
    board.down = True
    for _ in range(100):
        clock.now += 10.0
        with pytest.raises(ConnectionError):
            other.beat()
    board.down = False
    assert not other.take("plan x")
    one.beat()
    assert not other.take("plan x")


def test_a_run_that_was_taken_to_be_gone_is_back_with_its_next_beat(board, monkeypatch):
    clock = FakeClock()
    one, other = joins(board, monkeypatch, "a"), joins(board, monkeypatch, "b", clock)
    for _ in range(8):
        other.others()
        clock.now += 10.0
    assert other.others() == {}
    one.beat()
    assert list(other.others()) == [one.run]


def test_who_was_gone_before_is_not_waited_for_by_who_comes_later(board, monkeypatch):
    clock = FakeClock()
    gone, other = joins(board, monkeypatch, "a"), joins(board, monkeypatch, "b", clock)
    gone.take("plan x")
    for _ in range(8):
        other.others()
        clock.now += 10.0
    late = joins(board, monkeypatch, "c")
    assert list(late.others()) == [other.run]
    assert late.take("plan x")


def test_a_run_that_has_ended_holds_nothing(board, monkeypatch):
    one, other = joins(board, monkeypatch, "a"), joins(board, monkeypatch, "b")
    one.take("plan x")
    one.close()
    assert other.others() == {}
    assert other.take("plan x")


def test_the_counter_rises_by_itself_until_the_end(board, monkeypatch):
    one = Presence(board, beat_s=0.01)
    risen = threading.Event()
    write = board.write

    def written(name, value, *, patient=True):
        write(name, value)
        if '"beat":3' in value:
            risen.set()

    monkeypatch.setattr(board, "write", written)
    one.keep_beating()
    assert risen.wait(60)
    one.close()
    assert "autocompile heartbeat" not in {thread.name for thread in threading.enumerate()}
