import math
from itertools import pairwise

import pytest
from builders import baseline, failure, measurement, trial
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from autocompile.core.envelope import Line, at_calls, segments_of, steps
from autocompile.core.goal import Goal
from autocompile.search.judge import verdict as judging
from autocompile.search.judge.contender import contenders_of
from autocompile.search.judge.scatter import scatter_of


def judge(trials, calls, goal=None):
    goal = goal or Goal(calls=int(calls))
    contenders = contenders_of(trials, goal)
    return judging.judge(contenders, calls, scatter_of([t for t in trials if t.measurement]).margin(3))


def finals(*ratios):
    return [measurement(ratio) for ratio in ratios]


def test_a_clear_gain_wins_when_there_are_calls_enough():
    verdict = judge([baseline(), trial(1, 0.5, label="fast")], 100_000)
    assert verdict.winner.label == "fast"
    assert verdict.winner.ratio.inverse().value == pytest.approx(2)


def test_eager_wins_when_the_compile_is_never_paid_back():
    verdict = judge([baseline(), trial(1, 0.5, startup_s=10.0)], 100)
    assert verdict.winner.label == "eager"


def test_ties_go_to_the_simpler():
    near = [baseline(), trial(1, 0.50, label="complex", changes=4), trial(2, 0.51, label="simple", changes=1)]
    verdict = judge(near, 1e6)
    assert verdict.winner.label == "simple"
    assert "not faster beyond the noise" in verdict.reason


def test_little_is_given_away_for_the_simpler():
    """Both beat eager, and cannot be told apart; who reads 4% slower is not served for being simpler."""
    near = [baseline(), trial(1, 0.50, label="complex", changes=4), trial(2, 0.52, label="simple", changes=1)]
    verdict = judge(near, 1e6)
    assert [c.label for c in verdict.tied] == ["complex", "simple"]
    assert verdict.winner.label == "complex"
    assert verdict.reason.endswith("not distinguishable from simple, but no simpler one is within 2% of its time")


def test_what_is_surely_faster_a_call_is_not_said_to_be_within_the_noise():
    """Over few calls it is the start-up that leaves it open who is ahead."""
    some = [
        baseline(finals=finals(1.0, 1.0, 1.0)),
        trial(1, 0.5, label="inductor", changes=1, startup_s=0.08, finals=finals(0.5, 0.5, 0.5)),
        trial(2, 0.45, label="fused", changes=2, startup_s=0.1, finals=finals(0.45, 0.45, 0.45)),
    ]
    few = judge(some, 45)
    assert few.winner.label == "inductor"
    assert "fused is faster per call, but not certainly ahead over so few calls: start-up is measured" in few.reason
    assert few.reason.endswith("off by 15%, so the simpler one is preferred")
    assert judge(some, 100).winner.label == "fused"


def test_eager_wins_ties():
    verdict = judge([baseline(), trial(1, 0.97, finals=finals(0.98, 1.0))], 1e6)
    assert verdict.winner.label == "eager"


def test_processes_that_disagree_leave_less_to_be_said():
    agreeing = [baseline(finals=finals(1.0, 1.0)), trial(1, 0.93, finals=finals(0.93, 0.93))]
    scattered = [baseline(finals=finals(0.9, 1.15)), trial(1, 0.93, finals=finals(0.80, 1.08))]
    assert judge(agreeing, 1e6).winner.label == "candidate"
    assert judge(scattered, 1e6).winner.label == "eager"
    assert scatter_of(scattered).sigma > scatter_of(agreeing).sigma


def test_a_baseline_that_differs_from_itself_widens_the_margin():
    agreeing = trial(1, 0.93, finals=finals(0.93, 0.93))
    fair = [baseline(finals=finals(1.0, 1.0)), agreeing]
    biased = [baseline(ratio=1.1, finals=finals(1.1, 1.1)), agreeing]
    assert scatter_of(biased).margin(3) > 0.09 > scatter_of(fair).margin(3)
    assert judge(fair, 1e6).winner.label == "candidate"
    assert judge(biased, 1e6).winner.label == "eager"


def test_more_processes_narrow_the_interval():
    once = judge([baseline(), trial(1, 0.5)], 1e6).winner.ratio
    often = judge([baseline(), trial(1, 0.5, finals=finals(0.5, 0.5, 0.5, 0.5))], 1e6).winner.ratio
    assert often.relative_halfwidth < once.relative_halfwidth


def test_a_single_process_varies_more_than_the_mean_however_many_were_measured():
    """The mean's interval shrinks with the processes; that of one more process only to their scatter."""

    def of(count):
        agreeing = [math.exp(0.01 * (-1) ** number) / 2 for number in range(count)]
        return judge([baseline(), trial(1, 0.5, finals=finals(*agreeing))], 1e6).winner

    few, many = of(4), of(40)
    for one in (few, many):
        assert one.one_more.value == pytest.approx(one.ratio.value)
        assert one.one_more.relative_halfwidth > one.ratio.relative_halfwidth
    assert many.ratio.relative_halfwidth < 0.005
    assert 0.019 < many.one_more.relative_halfwidth < 0.022
    eager = judge([baseline(finals=finals(1.0, 1.1))], 1e6).winner
    assert (eager.one_more.low, eager.one_more.high) == (1.0, 1.0)


def test_failures_are_not_ranked():
    verdict = judge([baseline(), trial(1, outcome=failure())], 1e6)
    assert [c.label for c in verdict.ranking] == ["eager"]


lines = st.lists(
    st.builds(Line, label=st.text(max_size=5), startup_s=st.floats(0, 1e3), latency_s=st.floats(1e-6, 1)),
    min_size=1,
    max_size=8,
)


def lowest(some):
    """The segments of the line that takes the least time, and between equals the one with less start-up."""

    def choose(calls):
        return min(range(len(some)), key=lambda n: (some[n].total_s(calls), some[n].startup_s))

    return segments_of([(calls, some[number]) for calls, number in steps(choose, 10**10)])


@given(lines, st.integers(1, 10**7))
def test_a_choice_of_the_lowest_is_lowest_everywhere(some, calls):
    segments = lowest(some)
    assert segments[0].from_calls == 1
    assert segments[-1].to_calls is None
    for before, after in pairwise(segments):
        assert before.to_calls == after.from_calls - 1
    chosen = at_calls(segments, calls)
    least_s = min(line.total_s(calls) for line in some)
    assert min(line.total_s(calls) for line in some if line.label == chosen.label) <= least_s * (1 + 1e-9) + 1e-9


def test_the_published_break_evens():
    """Regional against whole-model compilation of one model on an H100-class GPU: 230 and 2,570 calls."""
    segments = lowest([Line("eager", 0.0, 18.3e-3), Line("regional", 1.95, 9.7e-3), Line("whole", 10.7, 6.3e-3)])
    assert [s.label for s in segments] == ["eager", "regional", "whole"]
    assert math.isclose(segments[1].from_calls, 230, rel_tol=0.02)
    assert math.isclose(segments[2].from_calls, 2570, rel_tol=0.02)
    assert [s.break_even for s in segments[1:]] == [s.from_calls for s in segments[1:]]


def test_who_was_left_is_not_taken_again():
    """However a choice goes back and forth, each is taken over one range."""
    found = steps(lambda calls: 0 if calls < 100 or 1000 <= calls < 5000 else 1 if calls < 20_000 else 2, 10**6)
    assert found == [(1, 0), (100, 1), (20_000, 2)]


def test_nobody_is_ahead_who_is_slower_and_was_preferred_for_being_simpler():
    (_first, second) = segments_of([(1, Line("quick", 1.0, 0.010)), (500, Line("simple", 1.1, 0.011))])
    assert (second.break_even, second.from_high) == (None, None)


def noisy(found):
    return replace(found, contamination=replace(found.contamination, noisy=True))


def on_a_noisy_host(one, processes):
    """A trial of which so many processes, of all, were timed beside something else."""
    finals = tuple(noisy(m) if number < processes else m for number, m in enumerate(one.finals))
    return replace(one, finals=finals)


def test_load_from_other_programs_at_the_start_does_not_spoil_the_run():
    """Screened next to other programs, and measured again when they had ended."""
    quiet = [baseline(finals=finals(1.0)), trial(1, 0.5, label="fast", finals=finals(0.5))]
    started_in_noise = [
        replace(one, outcome=noisy(measurement(ratio))) for one, ratio in zip(quiet, (1.6, 1.9), strict=True)
    ]
    verdict = judge(started_in_noise, 1e6)
    assert verdict.winner.label == "fast"
    assert verdict.winner.ratio.value == pytest.approx(0.5)
    assert verdict.winner.processes == 1
    assert scatter_of(started_in_noise).floor == 0.0


def test_nothing_is_called_faster_on_a_noisy_host():
    fast = trial(1, 0.5, label="fast", finals=finals(0.5, 0.5, 0.5))
    assert judge([baseline(), on_a_noisy_host(fast, 1)], 1e6).winner.label == "fast"
    verdict = judge([baseline(), on_a_noisy_host(fast, 3)], 1e6)
    assert verdict.winner.label == "eager"
    assert verdict.reason.startswith("fast was ahead, but other programs used this host while it was timed")
    assert [segment.label for segment in verdict.envelope] == ["eager"]
    assert [one.label for one in verdict.disturbed] == ["fast"]


def test_it_does_not_matter_that_the_baseline_was_timed_beside_other_programs():
    """Each process times its own baseline: a candidate's ratio is distorted only if its own process was disturbed."""
    fast = trial(1, 0.5, label="fast", finals=finals(0.5, 0.5, 0.5))
    of_eager = on_a_noisy_host(baseline(finals=finals(1.0, 1.0)), 2)
    verdict = judge([of_eager, fast], 1e6)
    assert verdict.winner.label == "fast"
    assert not verdict.disturbed


def with_tail(one, p99_ms):
    """A trial whose slowest calls took so long in every process."""
    return replace(one, finals=tuple(replace(m, latency=replace(m.latency, p99_ms=p99_ms)) for m in one.finals))


def test_the_slowest_calls_of_a_disturbed_baseline_make_nobody_faster():
    """A percentile is not a ratio of paired times: other programs distort the baseline's own, too."""
    alike = with_tail(trial(1, 1.0, label="alike", finals=finals(1.0, 1.0, 1.0)), 11.0)
    goal = Goal(objective="latency", percentile=99)
    calm = with_tail(baseline(finals=finals(1.0, 1.0)), 20.0)
    assert judge([calm, alike], math.inf, goal=goal).winner.label == "alike"
    busy = on_a_noisy_host(calm, 2)
    assert judge([busy, alike], math.inf, goal=goal).winner.label == "eager"
    fast = trial(1, 0.5, label="fast", finals=finals(0.5, 0.5, 0.5))
    envelope = judge([busy, fast], math.inf, goal=goal).envelope
    assert envelope == judge([busy, fast], 1e6).envelope, "over so many calls, the mean counts and no percentile"
    assert envelope[-1].label == "fast"
