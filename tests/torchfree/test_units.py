import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocompile.core.errors import InvalidValue
from autocompile.core.units import format_beyond, format_bytes, format_count, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("1h30m", 5400),
        ("1h 30m 10s", 5410),
        ("250ms", 0.25),
        ("2min", 120),
        ("1.5h", 5400),
        ("45", 45),
        (45, 45),
        (0.5, 0.5),
        (timedelta(minutes=2), 120),
    ],
)
def test_durations_that_users_write(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "soon", "10 parsecs", "5m later", "-3s", 0, -1, float("nan"), float("inf"), None, True]
)
def test_what_is_no_duration_is_said_with_an_example(text):
    with pytest.raises(InvalidValue, match=r"--budget: .*write it like 90s, 30m or 1h30m"):
        parse_duration(text, where="--budget")


@given(st.integers(1, 99), st.integers(0, 59), st.integers(0, 59))
def test_parts_add_up(hours, minutes, seconds):
    assert parse_duration(f"{hours}h{minutes}m{seconds}s") == hours * 3600 + minutes * 60 + seconds


@given(st.floats(1e-9, 1e6))
def test_any_duration_can_be_read_by_people(seconds):
    assert len(format_duration(seconds)) <= 12


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (2e-6, "2 µs"),
        (0.0123, "12.3 ms"),
        (4.2, "4.2 s"),
        (12.34, "12.3 s"),
        (92, "1m 32s"),
        (3900, "1h 05m"),
        (-2, "-2 s"),
    ],
)
def test_durations_for_reading(seconds, text):
    assert format_duration(seconds) == text


def test_sizes_and_counts_for_reading():
    assert format_bytes(90919291) == "86.7 MiB"
    assert format_bytes(5 * 2**40) == "5 TiB"
    assert format_count(2600) == "2,600"
    assert format_count(13_000_000) == "1.3e+07"


@pytest.mark.parametrize(
    ("value", "limit", "texts"),
    [(0.014, 0.01, ("0.014", "0.01")), (0.0104, 0.01, ("0.0104", "0.01")), (math.nan, 0.01, ("nan", "0.01"))],
)
def test_a_value_and_the_limit_that_it_exceeds_read_differently(value, limit, texts):
    assert format_beyond(value, limit) == texts
