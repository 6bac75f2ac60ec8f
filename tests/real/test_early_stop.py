import random

from autocompile.trial.clock.early_stop import ERROR_RATE, MedianTest


def looks_until_decided(values, threshold=0.0):
    test = MedianTest(threshold)
    return next((count for count, value in enumerate(values, 1) if test.observe(value)), None)


def test_a_clear_case_is_decided_soon():
    assert looks_until_decided([1.0] * 20) == 9


def test_what_is_below_is_never_given_up():
    assert looks_until_decided([-1.0] * 5000) is None


def test_false_alarms_stay_below_the_stated_rate_however_often_one_looks():
    source = random.Random(1)
    alarms = sum(looks_until_decided([source.gauss(0, 1) for _ in range(500)]) is not None for _ in range(1000))
    assert alarms / 1000 <= ERROR_RATE


def test_a_small_difference_is_found_in_time():
    source = random.Random(2)
    assert looks_until_decided([source.gauss(0.5, 1) for _ in range(2000)]) < 500
