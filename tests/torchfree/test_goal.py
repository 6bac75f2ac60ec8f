import math
from datetime import timedelta

import pytest

from autocompile.core.errors import InvalidValue
from autocompile.core.goal import Goal, batch_from
from autocompile.core.tolerance import multiple_for, published_tolerance


def test_calls_default_to_an_hour_of_the_baselines():
    assert Goal().calls_for(0.01) == pytest.approx(360_000)
    assert Goal(horizon="10s").calls_for(0.1) == pytest.approx(100)
    assert Goal(calls=7).calls_for(0.1) == 7


def test_a_horizon_shorter_than_one_call_is_said():
    Goal(calls=1).check_horizon(5.0)
    with pytest.raises(InvalidValue, match=r"horizon: 1 s is shorter than one call, which takes 5 s; give a longer"):
        Goal(horizon="1s").check_horizon(5.0)


def test_start_up_counts_for_the_amortized_time_only():
    assert Goal().spread_over(100.0) == 100.0
    assert Goal(objective="latency").spread_over(100.0) == math.inf
    assert Goal(objective="throughput").spread_over(100.0) == math.inf


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"calls": 0}, "calls: 0 calls is not a number of calls; give 1 or more"),
        ({"calls": True}, "calls: True calls is not a number of calls"),
        ({"horizon": "0s"}, "horizon: '0s' is not a positive duration"),
        ({"horizon": "soon"}, "horizon: cannot read 'soon' as a duration; write it like 90s"),
        ({"calls": 5, "horizon": "1h"}, "goal: calls and horizon cannot be combined; give one"),
        ({"calls": 5, "objective": "latency"}, "calls: the objective latency ignores start-up"),
        ({"horizon": "1h", "objective": "throughput"}, "horizon: the objective throughput ignores start-up"),
        ({"objective": "speed"}, "objective: 'speed' is unknown; give one of time, latency, throughput"),
        ({"deploy": "cloud"}, "deploy: 'cloud' is unknown; give one of jit, artifact"),
        ({"percentile": 99}, "percentile: neither the objective nor a limit is a latency; give max_latency"),
        ({"percentile": 42, "max_latency": "5ms"}, "percentile: 42 is not measured; give one of 50, 90, 95, 99"),
        ({"max_latency": "fast"}, "max_latency: cannot read 'fast' as a duration"),
        ({"max_latency": 50}, 'max_latency: 50 has no unit; write "50ms" or "50s", or give a timedelta'),
        ({"max_latency": "0.5"}, 'max_latency: 0.5 has no unit; write "0.5ms" or "0.5s"'),
        ({"max_startup": 10.5}, 'max_startup: 10.5 has no unit; write "10.5ms" or "10.5s"'),
        ({"max_startup": -1}, "max_startup: -1 is not a positive duration"),
        ({"max_memory": "lots"}, "max_memory: cannot read 'lots' as a size; write it like 512MiB or 8GB"),
        ({"max_memory": 0}, "max_memory: cannot read 0 as a size"),
        ({"batch": "big"}, "batch: 'big' is unknown; give fixed, tune, or sizes"),
        ({"batch": []}, "batch: is empty"),
        ({"batch": [0, 8]}, r"batch: \[0, 8\] is not a list of sizes"),
        ({"batch": 8}, "batch: 8 is not a list of sizes"),
        ({"batch": "tune", "objective": "latency"}, "batch: the smallest batch always has the lowest latency"),
        ({"tolerance": 0.0}, "tolerance: 0.0 is not positive; give one like 1e-3"),
        ({"tolerance": float("nan")}, "is not positive"),
        ({"max_drop": 0.1}, "max_drop: max_drop needs a metric"),
        ({"max_drop": -1, "metric": abs}, "max_drop: -1 is negative"),
        ({"metric": abs, "tolerance": 1e-3}, "metric and tolerance cannot be combined"),
        ({"metric": 3}, "metric: a int is not callable"),
    ],
)
def test_goals_that_cannot_be(fields, said):
    with pytest.raises(InvalidValue, match=said):
        Goal(**fields)


def test_a_goal_as_data_is_read_and_has_its_defaults():
    entry = Goal(
        max_latency="5ms", percentile=99, max_memory="2GiB", max_startup=timedelta(seconds=10), batch=[8, 1, 8]
    ).entry()
    assert (entry.max_latency_ms, entry.percentile, entry.max_memory_bytes, entry.max_startup_s) == (5, 99, 2 << 30, 10)
    assert (entry.batch, entry.horizon_s, entry.calls) == ((8, 1), 3600, None)
    assert Goal(calls=3).entry().horizon_s is None


def test_batches_from_the_command_line():
    assert batch_from("tune") == "tune"
    assert batch_from("1,8,32") == [1, 8, 32]
    with pytest.raises(InvalidValue, match="batch: cannot read 'eight'; give fixed, tune, or 1,8,32"):
        batch_from("eight")


def test_a_users_tolerance_is_exactly_that_in_every_precision():
    tolerance = Goal(tolerance=1e-3).tolerance_for("bfloat16")
    assert (tolerance.rmse, multiple_for(tolerance, 5)) == (1e-3, 0.0)
    assert Goal().tolerance_for("bfloat16") == published_tolerance("bfloat16")


def test_small_outputs_may_be_off_by_more():
    published = published_tolerance("")
    assert [multiple_for(published, n) for n in (10, 500, 501)] == [10.0, 3.0, 2.0]
