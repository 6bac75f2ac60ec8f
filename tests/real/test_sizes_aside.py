"""Input sizes that may crash the process that tries them, as an index beyond a table does on a GPU."""

import os
from types import SimpleNamespace

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from autocompile.core.job import Acceptance
from autocompile.core.plan import Plan
from autocompile.core.tolerance import published_tolerance
from autocompile.trial.check import sizes
from autocompile.trial.check.new_sizes import probe_unseen
from autocompile.trial.check.sizes import Size, SizesTask, taken_aside, tried
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

    def dies(one, _limit_s):
        told.append(len(one.sizes))
        return []

    monkeypatch.setattr(sizes, "_told", dies)
    assert taken_aside(task(tmp_path, *range(1, 9))) == [False] * 8
    assert told == [8, 7, 6, 5]


def test_a_size_between_those_seen_that_ends_a_process_ends_no_trial(tmp_path, monkeypatch):
    """As on a GPU, where it would be an assertion of the device's."""
    samples = [Sample((torch.ones(rows, 2),), {}) for rows in (4, 40)]
    spooled = spool(Positions(), [one.args for one in samples], tmp_path / "workload")
    asked = SimpleNamespace(
        plan=Plan(), seed=0, acceptance=Acceptance(published_tolerance("")), workload=replace(spooled, device="cuda")
    )
    monkeypatch.setattr(sizes, "_told", in_this_process)
    step = Call(Positions())
    assert probe_unseen(step, step, samples, asked, left_s=60.0, random=False).tried == 0
    small = [samples[0], Sample((torch.ones(7, 2),), {})]
    assert probe_unseen(step, step, small, asked, left_s=60.0, random=False).tried == 1
    monkeypatch.setattr(sizes, "_told", None)
    assert probe_unseen(step, step, small, asked, left_s=60.0, random=False).tried == 1, "what was found out is kept"
    assert probe_unseen(step, step, samples[:1] * 2, asked, left_s=60.0, random=False).tried == 0, "nothing to ask"


def in_this_process(asked, limit_s):
    """What a process says that tries 16 rows at most, and dies of more."""
    assert 0 < limit_s <= 15.0, "a share of the time that is left"
    (one,) = asked.sizes
    return [True] if one.size <= 16 else []


def test_what_is_not_found_out_in_time_is_not_taken(tmp_path):
    assert taken_aside(task(tmp_path, 2, 3), limit_s=0.0) == [False, False]
    assert taken_aside(task(tmp_path, 2), limit_s=1e-3) == [False]


@pytest.mark.parametrize(("size", "taken"), [(1, True), (8, True), (9, False)])
def test_in_one_process_an_exception_tells(size, taken):
    assert list(tried(Call(Positions()), Sample((torch.ones(4, 2),), {}), [Size(ROWS, size)], "cpu")) == [taken]
