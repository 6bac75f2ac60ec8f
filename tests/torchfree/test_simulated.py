"""Replay with several lanes: which tasks run in parallel, and results in the order of the recording's clock."""

import pytest
from builders import workload
from test_replay import PLANS, recording  # noqa: F401  a fixture

from autocompile.core.errors import RunnerError
from autocompile.core.job import Acceptance, Limits, Timing, TrialTask
from autocompile.core.outcome import Failure, Measurement
from autocompile.core.tolerance import published_tolerance
from autocompile.runner.replay import ReplayRunner
from autocompile.runner.simulated import VirtualClock

AMPLE = Limits(1e6)
# Recorded plans, and the seconds that they take in the recording.
EAGER, INDUCTOR, FROZEN, WRONG = PLANS[0][0], PLANS[1][0], PLANS[2][0], PLANS[5][0]
EAGER_S, COMPILED_S, WRONG_S = 3.0, 11.0, 1.0


@pytest.fixture
def replayed(recording):  # noqa: F811
    def runner(lanes):
        return ReplayRunner(recording, VirtualClock(), lanes)

    return runner


def submit(runner, plan, *, exclusive=False, limits=AMPLE):
    task = TrialTask(workload(), plan, "", Timing(0.05, 1.0), Acceptance(published_tolerance("")), seed=0)
    return runner.submit(task, limits, cache=plan.key, exclusive=exclusive)


def order(runner):
    return [key for _when, key in runner.timeline]


def test_one_lane_runs_one_after_the_other(replayed):
    runner = replayed(1)
    compiled, eager = submit(runner, INDUCTOR), submit(runner, EAGER)
    assert isinstance(eager.answer(), Measurement)
    assert runner.clock.now == COMPILED_S + EAGER_S
    assert compiled.is_done()
    assert (compiled.span_s, eager.span_s) == ((0.0, COMPILED_S), (COMPILED_S, COMPILED_S + EAGER_S))


def test_lanes_run_side_by_side_and_answer_in_the_order_of_the_clock(replayed):
    runner = replayed(2)
    compiled, eager, wrong = submit(runner, INDUCTOR), submit(runner, EAGER), submit(runner, WRONG)
    assert runner.lanes == 2
    assert runner.clock.now == 0.0
    assert not eager.is_done()
    assert runner.first_done([compiled, eager, wrong]) is eager
    assert runner.clock.now == EAGER_S
    assert not compiled.is_done()
    assert isinstance(compiled.answer(), Measurement)
    assert runner.clock.now == COMPILED_S
    assert wrong.is_done()
    assert wrong.span_s == (EAGER_S, EAGER_S + WRONG_S)
    assert order(runner) == [EAGER.key, WRONG.key, INDUCTOR.key]
    assert [when for when, _key in runner.timeline] == [EAGER_S, EAGER_S + WRONG_S, COMPILED_S]
    assert isinstance(wrong.answer(), Failure)
    assert runner.clock.now == COMPILED_S, "an answer that is there costs nothing"


def test_what_is_exclusive_runs_alone(replayed):
    runner = replayed(3)
    before = [submit(runner, EAGER), submit(runner, INDUCTOR)]
    timed = submit(runner, FROZEN, exclusive=True)
    after = submit(runner, WRONG)
    after.answer()
    (began, ended) = timed.span_s
    assert began == max(pending.span_s[1] for pending in before) == COMPILED_S
    assert after.span_s[0] == ended == 2 * COMPILED_S


def test_two_that_are_exclusive_run_one_after_the_other(replayed):
    runner = replayed(2)
    timed = [submit(runner, plan, exclusive=True) for plan in (EAGER, INDUCTOR)]
    timed[1].answer()
    assert [pending.span_s for pending in timed] == [(0.0, EAGER_S), (EAGER_S, EAGER_S + COMPILED_S)]


def test_who_is_cancelled_makes_room(replayed):
    runner = replayed(1)
    running, waiting, last = submit(runner, INDUCTOR), submit(runner, FROZEN), submit(runner, EAGER)
    runner.clock.now = 2.0
    waiting.cancel()
    running.cancel()
    assert isinstance(last.answer(), Measurement)
    assert last.span_s == (2.0, 2.0 + EAGER_S)
    assert order(runner) == [EAGER.key], "what was cancelled found nothing"
    for pending in (running, waiting):
        with pytest.raises(RunnerError, match="cancelled"):
            pending.answer()


def test_limits_are_kept_beside_others(replayed):
    runner = replayed(2)
    ended, eager = submit(runner, INDUCTOR, limits=Limits(100.0, compile_s=1.0)), submit(runner, EAGER)
    assert ended.answer().kind == "timeout"
    assert runner.clock.now == 1.5
    assert not eager.is_done()


def test_a_clock_that_others_moved_ends_whoever_has_ended_by_then(replayed):
    runner = replayed(1)
    eager, compiled = submit(runner, EAGER), submit(runner, INDUCTOR)
    runner.clock.now = 5.0
    assert eager.is_done()
    assert not compiled.is_done()
    compiled.answer()
    assert runner.clock.now == EAGER_S + COMPILED_S
