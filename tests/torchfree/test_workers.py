"""How many workers: what users write, and what they are told of what cannot be."""

import pytest

from autocompile.api import optimize
from autocompile.core.errors import InvalidValue
from autocompile.runner import workers
from autocompile.runner.workers import parse_workers


@pytest.fixture(autouse=True)
def four_cores(monkeypatch):
    monkeypatch.setattr(workers, "usable_cores", lambda: 4)


@pytest.mark.parametrize(("text", "count"), [("1", 1), (1, 1), ("4", 4), (" 3 ", 3)])
def test_a_number_is_so_many(text, count):
    assert parse_workers(text) == count


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("many", "workers: 'many' is no number of workers; give one like 2"),
        ("", "workers: '' is no number of workers; give one like 2"),
        ("2.5", "workers: '2.5' is no number of workers; give one like 2"),
        (2.0, "workers: 2.0 is no number of workers; give one like 2"),
        (True, "workers: True is no number of workers; give one like 2"),
        ("²", "workers: '²' is no number of workers; give one like 2"),
        ("dask://host:8786", "workers: 'dask://host:8786' is no number of workers; give one like 2"),
        ("-1", "workers: '-1' is no number of workers; give one like 2"),
        (-1, "workers: -1 workers compile nothing; give 1 or more"),
        ("0", "workers: 0 workers compile nothing; give 1 or more"),
        ("5", "workers: 5 workers are more than the 4 cores that this process may use; give at most 4"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(text, fault):
    with pytest.raises(InvalidValue) as told:
        parse_workers(text)
    assert str(told.value) == fault


def test_one_core_is_told_in_the_singular(monkeypatch):
    monkeypatch.setattr(workers, "usable_cores", lambda: 1)
    with pytest.raises(InvalidValue, match="the 1 core that"):
        parse_workers(2)


def test_optimize_says_so_before_anything_is_run():
    with pytest.raises(InvalidValue, match="workers: 'gpu' is no number"):
        optimize(None, None, workers="gpu")
