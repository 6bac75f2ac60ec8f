"""Sizes that may end the process that tries them, as an index beyond a table ends one on a GPU."""

import os

import pytest
import torch
from torch import nn

from autocompile.trial.pack import sizes
from autocompile.trial.pack.sizes import Size, SizesTask, taken_aside, tried
from autocompile.workload.call import Call
from autocompile.workload.samples import Sample
from autocompile.workload.spool import spool

ROWS = ((0, 0),)


class Positions(nn.Module):
    """Takes up to 8 rows, raises for up to 16, and takes its process along beyond."""

    def forward(self, x):
        if len(x) > 16:
            os.abort()
        if len(x) > 8:
            raise IndexError("index out of range")
        return x * 2


def task(tmp_path, *tries):
    workload = spool(Positions(), torch.ones(4, 2), tmp_path / "workload")
    return SizesTask(workload, 0, 0, tuple(Size(ROWS, size) for size in tries))


def test_a_size_that_ends_the_process_is_not_taken_and_the_others_are_tried(tmp_path):
    assert taken_aside(task(tmp_path, 2, 32, 12, 8)) == [True, False, False, True]


def test_sizes_that_end_every_process_are_given_up(tmp_path, monkeypatch):
    told = []

    def dies(one):
        told.append(len(one.sizes))
        return []

    monkeypatch.setattr(sizes, "_told", dies)
    assert taken_aside(task(tmp_path, *range(1, 9))) == [False] * 8
    assert told == [8, 7, 6, 5]


@pytest.mark.parametrize(("size", "taken"), [(1, True), (8, True), (9, False)])
def test_in_one_process_an_exception_tells(size, taken):
    assert list(tried(Call(Positions()), Sample((torch.ones(4, 2),), {}), [Size(ROWS, size)], "cpu")) == [taken]
