"""The DataLoader of an unmodified script: observed while it is watched, and changed by `autocompile run`."""

import json
import multiprocessing
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from laboratory import reply_to
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, Sampler, get_worker_info

from autocompile.artifact.scripted_loader import ServedLoader
from autocompile.core.estimate import Estimate
from autocompile.core.job import CaptureTask, Limits, Watching
from autocompile.core.pipeline import InputPipeline, LoaderSetting, LoaderTiming
from autocompile.core.workload import Workload
from autocompile.workload.capture import same_batches
from autocompile.workload.capture.same_batches import facts_of, why_fixed
from autocompile.workload.watching.loaders import WatchedLoaders

SCRIPT = """\
import sys, time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, n):
        time.sleep(0.02)
        return torch.full((4,), n / 96), n % 2

torch.manual_seed(0)
net, other = nn.Linear(4, 2), nn.Linear(4, 3)
loader = DataLoader(Slow(), batch_size=4, shuffle=True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1) if "train" in sys.argv else None
for x, y in loader:
    with torch.set_grad_enabled(optimizer is not None):
        loss = nn.functional.cross_entropy(net(x), y)
    if optimizer:
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"{loss.item():.5f}")
for x, _ in DataLoader([(torch.ones(4), 0)] * 3):
    other(x)
"""


class Counted(Dataset):
    """Its samples; with `draws`, random ones, rarely so; with `counts`, as often as they were asked for."""

    def __init__(self, draws="", counts=False, keeps=False):
        self.draws, self.counts, self.asked = draws, counts, 0
        self.kept, self.own = {} if keeps else None, random.Random(0)

    def __len__(self):
        return 24

    def __getitem__(self, n):
        self.asked += self.counts
        if self.kept is not None:
            self.kept[n] = n
        draw = {"": lambda: 1.0, "torch": torch.rand, "python": random.random, "numpy": np.random.rand,
                "its own": self.own.random, "a module's": GENERATOR.random}[self.draws]  # fmt: skip
        rare = (draw(()) if self.draws == "torch" else draw()) < 1e-9
        return torch.tensor([n, rare, self.asked // 1000])


GENERATOR = np.random.default_rng(0)


class Slower(Counted):
    def __getitem__(self, n):
        time.sleep(0.01)
        return super().__getitem__(n)


def workers_differ(batch):
    """One of three workers gives something else."""
    info = get_worker_info()
    return torch.tensor(batch[0].tolist() if info is None or info.num_workers < 2 else [])


class Ones(IterableDataset):
    def __iter__(self):
        return iter([torch.ones(2)] * 8)


class Own(Sampler):
    def __iter__(self):
        return iter(range(24))

    def __len__(self):
        return 24


GLOBAL = ("torch", "python", "numpy", "a module's")


@pytest.mark.parametrize(
    ("loader", "said"),
    [
        (lambda: DataLoader(Counted(), batch_size=4, shuffle=True), ""),
        (lambda: DataLoader(Counted(), batch_size=4, num_workers=1), ""),
        *((lambda draws=draws: DataLoader(Counted(draws), batch_size=4), "draws random") for draws in GLOBAL),
        (lambda: DataLoader(Counted("torch"), batch_size=4, num_workers=1), "draws random numbers"),
        (lambda: DataLoader(Counted("its own"), batch_size=4), "writes to itself"),
        (lambda: DataLoader(Counted(counts=True), batch_size=4), "writes to itself"),
        (lambda: DataLoader(Counted(keeps=True), batch_size=4), "writes to itself"),
        (lambda: DataLoader(Counted(), 4, num_workers=1, collate_fn=workers_differ), "gives different batches"),
        (lambda: DataLoader(Counted(), batch_size=12), "too few batches"),
        (lambda: DataLoader(Counted(), batch_size=4, sampler=Own()), "is not one of torch's"),
        (lambda: DataLoader(Counted(), batch_sampler=BatchSampler(Own(), 4, False)), "is not one of torch's"),
        (lambda: DataLoader(Counted(), 4, shuffle=True, generator=torch.Generator()), "was given a generator"),
        (lambda: DataLoader(Counted(), 4, sampler=RandomSampler(range(24), replacement=True)), "with replacement"),
        (lambda: DataLoader(Ones(), batch_size=4), "each worker would iterate over a copy of it"),
    ],
)
def test_a_loader_is_left_where_workers_would_change_its_batches(loader, said):
    found = why_fixed(loader())
    assert said in found
    assert bool(found) == bool(said)


def test_a_loader_that_is_too_slow_to_be_compared_is_left(monkeypatch):
    monkeypatch.setattr(same_batches, "_SECONDS", 0.0)
    assert "too few batches" in why_fixed(DataLoader(Slower(), batch_size=4))


def test_what_a_dataset_kept_while_it_was_watched_is_seen():
    loader = DataLoader(Counted(keeps=True), batch_size=4)
    watched = WatchedLoaders()
    module = torch.nn.Identity()
    with watched.open():
        for batch in loader:
            watched.called(module)
            module(batch)
    pipeline = watched.feeding(module).pipeline(Path(), 0.0, tries=False, trains=False)
    assert "writes to itself" in pipeline.fixed


def test_another_loader_of_the_script_is_left_where_its_order_would_change():
    torch.manual_seed(0)
    plain, given = (DataLoader(Counted(), 4, shuffle=True, generator=g) for g in (None, torch.Generator()))
    served = recommended(plain)
    with served.applied():
        for _batch in given:
            break
    assert list(served.lines()) == []


def recommended(loader, fixed="", workers=2):
    """A recommendation's part that is about a loader: so many workers are far better than none."""
    own = LoaderTiming(LoaderSetting(0, 0, pinned=False), 1000.0, 4)
    better = LoaderTiming(LoaderSetting(workers, 2, pinned=False), 10.0, 4)
    pipeline = InputPipeline("DataLoader", own, (better,), loader=facts_of(loader), fixed=fixed)
    latency = Estimate(value=1.0, low=1.0, high=1.0)
    profile = SimpleNamespace(pipeline=pipeline, loaders=None, baseline_ms=latency)
    return ServedLoader(SimpleNamespace(profile=profile, workload=SimpleNamespace(training=None)))


def passes(loader):
    """Two passes in which the model draws, too; what came, how many workers there were, what is drawn afterwards."""
    torch.manual_seed(3)
    found, workers = [], set()
    for _ in range(2):
        for batch in loader:
            found.append((batch.tolist(), torch.rand(()).item()))
            workers.add(len(multiprocessing.active_children()))
    return found, max(workers), torch.rand(()).item()


def test_batches_order_and_random_numbers_are_as_without():
    loader, other = (DataLoader(Counted(), batch_size=size, shuffle=True) for size in (4, 3))
    plain, also = passes(loader), passes(other)
    served = recommended(loader)
    with served.applied():
        assert passes(loader) == (plain[0], 2, plain[2])
        assert passes(other) == also  # another loader
    assert list(served.lines()) == [
        "DataLoader with num_workers=2, prefetch_factor=2 in place of num_workers=0: 2 passes"
    ]
    assert passes(loader) == plain
    fixed = recommended(loader, "its workers persist")
    with fixed.applied():
        assert passes(loader) == plain
    assert "is not applied: its workers persist" in next(fixed.lines())


def drawn(own_workers):
    """Two loaders side by side, and what is drawn between the start of a pass and its first batch."""
    torch.manual_seed(3)
    one, other = (DataLoader(Counted(), batch_size=4, shuffle=True, num_workers=own_workers) for _ in range(2))
    found = [(mine.tolist(), theirs.tolist()) for mine, theirs in zip(one, other, strict=True)]
    batches = iter(one)
    weights = torch.rand(2).tolist()
    return found, weights, [batch.tolist() for batch in batches], torch.rand(()).item()


@pytest.mark.parametrize("own_workers", [0, 1])
def test_random_numbers_are_drawn_when_they_are_without(own_workers):
    plain = drawn(own_workers)
    served = recommended(DataLoader(Counted(), batch_size=4, shuffle=True, num_workers=own_workers))
    with served.applied():
        assert drawn(own_workers) == plain
    assert "3 passes" in next(served.lines())


def test_a_loader_with_a_timeout_is_served_without_workers():
    loader = DataLoader(Counted(), batch_size=4, shuffle=True, num_workers=1, timeout=60)
    plain = passes(loader)
    with recommended(loader, workers=0).applied():
        assert passes(loader) == (plain[0], 0, plain[2])


@pytest.mark.parametrize("what", ["infer", "train"])
def test_the_loader_that_feeds_the_model_is_seen(runner, tmp_path, what):
    (tmp_path / "script.py").write_text(SCRIPT)
    task = CaptureTask(
        str(tmp_path / "script.py"), str(tmp_path / "workload"), arguments=(what,), watching=Watching(module="net")
    )
    reply = reply_to(runner, task, Limits(120.0), cache="capture")
    assert isinstance(reply, Workload), reply
    assert reply.kind == {"infer": "inference", "train": "training"}[what]
    pipeline = reply.pipeline
    assert (pipeline.loader.dataset, pipeline.loader.samples, pipeline.loader.sampler) == ("Slow", 96, "RandomSampler")
    assert pipeline.own.batch_ms >= 80
    assert pipeline.fixed == ""
    if what == "train":
        assert pipeline.stays == ""
    else:
        assert {one.setting.workers for one in pipeline.tried} > {1}


def test_a_script_is_run_with_the_better_setting(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    quick = "[search]\nmax_trials = 1\n[dimensions]\nruntime = ['eager']\namp = ['off']\nthreads = []\n"
    quick += "[finals]\ncandidates = 1\nprocesses = 1\nlimit_s = 1.0\n"
    (tmp_path / "quick.toml").write_text(quick)
    tune = ["tune", "script.py", "--budget", "200s", "--module", "net", "--strategy", "quick.toml", "--json"]
    plain = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, cwd=tmp_path, check=True)
    for command in (tune, ["run", "rec", "script.py"]):
        ran = subprocess.run(
            [sys.executable, "-m", "autocompile", *command], capture_output=True, text=True, cwd=tmp_path, check=False
        )
        assert ran.returncode == 0, ran.stderr
        if command is tune:
            assert json.loads(ran.stdout)["profile"]["pipeline"]["loader"]["dataset"] == "Slow"
    assert ran.stdout == plain.stdout
    assert re.search(
        r"autocompile: DataLoader with num_workers=\d+, .* in place of num_workers=0: 1 pass$", ran.stderr, re.MULTILINE
    )
