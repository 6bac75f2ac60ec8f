"""Eager's own bias in a process is taken out of the ratios of candidates that do not follow it."""

import math
import random

import pytest
from builders import baseline, measurement, trial
from msgspec.structs import replace

from autocompile.search.judge.scatter import ratio_of, scatter_of
from autocompile.search.judge.steadied import Eager, eager_of, mean_ratio

# Milliseconds of a stencil in eager, in processes with one candidate and with another.
SLOW, FAST = (6.15, 6.50, 6.72, 7.03, 7.00, 6.92, 6.87, 6.45), (5.78, 5.72, 6.59, 5.53, 6.44, 5.87, 6.67, 5.89)


def measured(number, times, eagers):
    """A trial whose processes took these milliseconds, next to eager, which took those."""
    each = [measurement(own / eager, baseline_ms=eager) for own, eager in zip(times, eagers, strict=True)]
    return trial(number, outcome=each[0], finals=each)


def ratio(own, trials):
    return ratio_of(own, scatter_of(trials)).value


def plain(own):
    return sum(math.log(m.ratio.value) for m in own.measurements) / len(own.measurements)


def test_candidates_that_do_not_follow_eager_are_ranked_by_their_own_times():
    """The first is 6% slower, but it was measured in processes in which eager was slow, too."""
    slower = measured(1, (2.57, 2.47, 2.51, 2.55, 2.56, 2.46, 2.49, 2.48), SLOW)
    faster = measured(2, (2.39, 2.36, 2.36, 2.37, 2.37, 2.30, 2.40, 2.37), FAST)
    trials = [baseline(), slower, faster]
    assert plain(slower) < plain(faster), "by the ratios alone, the slower one would win"
    assert ratio(slower, trials) > ratio(faster, trials)


def test_a_candidate_that_follows_eager_keeps_its_ratio():
    trials = [baseline()]
    for number, eagers in enumerate((SLOW, FAST), 1):
        trials.append(measured(number, [0.5 * eager for eager in eagers], eagers))
    for one in trials[1:]:
        assert ratio(one, trials) == pytest.approx(0.5)


def test_a_machine_that_was_slower_for_all_processes_of_a_trial_changes_no_ratio_by_much():
    """As on another day: eager and the candidate take 10% longer, in all processes alike."""
    draw = random.Random(1)
    trials = [_simulated(draw, 0.01, follows=False) for _candidate in range(3)]
    usual = [math.exp(plain(one)) for one in trials]
    slow = replace(trials[0], finals=tuple(slower_by(m, 1.1) for m in trials[0].measurements))
    assert ratio(slow, [slow, *trials[1:]]) == pytest.approx(usual[0], rel=0.02)


def slower_by(one, factor):
    eager = replace(one.baseline, mean_ms=factor * one.baseline.mean_ms)
    return replace(one, baseline=eager, latency=replace(one.latency, mean_ms=factor * one.latency.mean_ms))


def test_two_processes_are_too_few_to_tell():
    one = measured(1, (2.4, 2.5), (5.0, 7.0))
    assert mean_ratio(one, eager_of([one, measured(2, (2.4,) * 8, SLOW)])) == pytest.approx(plain(one))


def test_candidates_with_another_batch_keep_their_ratios():
    other = measured(1, (2.4,) * 8, SLOW)
    batched = replace(other, finals=tuple(replace(m, batch_factor=2.0) for m in other.measurements))
    assert eager_of([batched]) == Eager()
    assert mean_ratio(batched, Eager(1.0, scatter=0.1)) == pytest.approx(plain(other))
    assert mean_ratio(other, Eager(1.0, scatter=0.1)) != pytest.approx(plain(other))


@pytest.mark.parametrize(
    ("eagers_own", "following", "most"),
    [(0.0, (False,) * 3, 1.1), (0.08, (False,) * 3, 0.6), (0.08, (True,) * 3, 1.2), (0.08, (False, False, True), 0.7)],
)
def test_on_average_ratios_are_more_exact_if_eager_has_a_bias_that_candidates_do_not_share(eagers_own, following, most):
    """Also with machine states that both share, and biases of the candidates."""
    draw = random.Random(0)
    squares = {"plain": 0.0, "steadied": 0.0}
    for _ in range(300):
        trials = [_simulated(draw, eagers_own, follows=follows) for follows in following]
        eager = eager_of(trials)
        for one in trials:
            squares["plain"] += (plain(one) - math.log(0.5)) ** 2
            squares["steadied"] += (mean_ratio(one, eager) - math.log(0.5)) ** 2
    assert squares["steadied"] < most * squares["plain"], squares["steadied"] / squares["plain"]


def _simulated(draw, eagers_own, *, follows):
    times, eagers = [], []
    for _process in range(5):
        shared, bias, own = draw.gauss(0, 0.02), draw.gauss(0, eagers_own), draw.gauss(0, 0.012)
        eagers.append(6 * math.exp(shared + bias))
        times.append(3 * math.exp(shared + bias * follows + own))
    return measured(1, times, eagers)
