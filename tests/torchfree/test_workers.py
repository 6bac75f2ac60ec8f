"""The number of workers: what users can write, and the messages for invalid values."""

import pytest

from autocompile.api import optimize
from autocompile.core.environment import Gpu
from autocompile.core.errors import InvalidValue
from autocompile.runner import workers
from autocompile.runner.cluster import gpus
from autocompile.runner.workers import Workers, parse_workers

ONE = "give a number like 2, or gpu, or dask://host:8786 or ray://host:10001"


@pytest.fixture(autouse=True)
def four_cores(monkeypatch):
    monkeypatch.setattr(workers, "usable_cores", lambda: 4)


@pytest.mark.parametrize(("text", "count"), [("1", 1), (1, 1), ("4", 4), (" 3 ", 3)])
def test_a_number_is_so_many(text, count):
    assert parse_workers(text) == Workers(here=count)


def test_others_are_reached_by_what_brings_agents_there():
    assert parse_workers("gpu") == Workers(engine="gpu")
    assert parse_workers(" dask://host:8786/ ") == Workers(engine="dask", address="host:8786")
    assert parse_workers("ray://host:10001") == Workers(engine="ray", address="host:10001")
    assert parse_workers("dask://[::1]:8786") == Workers(engine="dask", address="[::1]:8786")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("many", f"workers: 'many' is not a number of workers; {ONE}"),
        ("", f"workers: '' is not a number of workers; {ONE}"),
        ("2.5", f"workers: '2.5' is not a number of workers; {ONE}"),
        (2.0, f"workers: 2.0 is not a number of workers; {ONE}"),
        (True, f"workers: True is not a number of workers; {ONE}"),
        ("²", f"workers: '²' is not a number of workers; {ONE}"),
        ("dask://host", f"workers: 'dask://host' is not a number of workers; {ONE}"),
        ("-1", f"workers: '-1' is not a number of workers; {ONE}"),
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
    with pytest.raises(InvalidValue, match="workers: 'many' is not a number"):
        optimize(None, None, workers="many")


def test_that_there_is_no_gpu_is_told(monkeypatch):
    monkeypatch.setattr(gpus, "nvidia_gpus", lambda: ((), ""))
    with pytest.raises(InvalidValue, match="workers: there is no NVIDIA GPU here; give a number of workers, like 2"):
        gpus.GpuEngine()


def test_each_gpu_but_homes_own_has_a_worker_that_sees_it_alone(monkeypatch):
    monkeypatch.setattr(gpus, "nvidia_gpus", lambda: (tuple(Gpu("A", f"GPU-{n}", 1) for n in range(3)), "1"))
    monkeypatch.setattr(gpus, "Process", lambda variables: variables)
    engine = gpus.GpuEngine()
    assert [engine.link(worker) for worker in engine.workers()] == [
        {"CUDA_VISIBLE_DEVICES": "GPU-1"},
        {"CUDA_VISIBLE_DEVICES": "GPU-2"},
    ]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    engine = gpus.GpuEngine()
    assert [engine.link(worker) for worker in engine.workers()] == [{"CUDA_VISIBLE_DEVICES": "0"}]
