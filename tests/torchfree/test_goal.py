import pytest

from autocompile.core.errors import InvalidValue
from autocompile.core.goal import Goal
from autocompile.core.tolerance import multiple_for, published_tolerance


def test_calls_default_to_an_hour_of_the_baselines():
    assert Goal().calls_for(0.01) == pytest.approx(360_000)
    assert Goal(horizon="10s").calls_for(0.1) == pytest.approx(100)
    assert Goal(calls=7).calls_for(0.1) == 7
    assert Goal(horizon=1.0).calls_for(5.0) == 1


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"calls": 0}, "calls: 0 calls is not a number of calls; give 1 or more"),
        ({"horizon": "0s"}, "horizon: '0s' is not a positive duration"),
        ({"tolerance": 0.0}, "tolerance: 0.0 is no tolerance; give one like 1e-3"),
        ({"tolerance": float("nan")}, "is no tolerance"),
        ({"max_drop": 0.1}, "max_drop: there is no metric that could drop"),
        ({"max_drop": -1, "metric": abs}, "max_drop: -1 is no drop"),
        ({"metric": abs, "tolerance": 1e-3}, "a metric takes the place of a tolerance"),
        ({"metric": 3}, "metric: a int cannot be called"),
    ],
)
def test_goals_that_contradict_themselves(fields, said):
    with pytest.raises(InvalidValue, match=said):
        Goal(**fields)


def test_a_users_tolerance_is_exactly_that_in_every_precision():
    tolerance = Goal(tolerance=1e-3).tolerance_for("bfloat16")
    assert (tolerance.rmse, multiple_for(tolerance, 5)) == (1e-3, 0.0)
    assert Goal().tolerance_for("bfloat16") == published_tolerance("bfloat16")


def test_small_outputs_may_be_off_by_more():
    published = published_tolerance("")
    assert [multiple_for(published, n) for n in (10, 500, 501)] == [10.0, 3.0, 2.0]
