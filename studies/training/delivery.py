"""Measure how soon a restarted job reaches full speed: `prepare` with its carried cache against the pasted snippet.

    python studies/training/delivery.py [--only glu] [--rounds 3]     # about ten minutes a workload

`gates` is a recurrence of 24 steps of gates, all element by element. `glu` has 16 blocks of a normalization and a gated
linear unit, as in a Llama, whose operators mostly wait for memory; a compiler fuses them. The other workloads are those
of `workloads.py`.

A workload is tuned with `torch.compile` as the only runtime besides eager. Then separate processes start in turn, each
with an empty compiler cache, and do the same steps:

- `prepared` uses `prepare` with the recommendation, which carries a cache.
- `pasted` uses the plain torch code of the recommendation, which has to compile.

`step_ms` is the median of the second half of the steps. `full_s` is the time from the start of building the loop until
the end of the first step that takes at most 1.2 times that median. If `label` is `eager`, nothing has to be compiled on
this machine, and the start of the two does not differ.

`prepared_over_pasted` compares the speed: in a process for each round, the steps of both alternate, each on a model of
its own. It is the time of a prepared step divided by that of a pasted one, with its 95% interval: the median over the
processes. One row per workload is appended to delivery/ and printed.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from by_hand import Loop
from one import PRECISION, timed
from torch import nn
from torch.nn import functional
from torch.optim import AdamW
from workloads import Workload, classified, device_type, fitted, sgd, workload

import autocompile
from autocompile.core.job import Timing
from autocompile.trial.clock.timing import time_pairs

HERE = Path(__file__).parent
STEPS = 40
_FULL = 1.2
# The longest time for which the steps of both are timed in a process.
_SECONDS = 20.0
_COMPILED = """
[search]
max_trials = 8
[dimensions]
runtime = ["inductor"]
amp = []
optimizer = []
mode = ["default"]
dynamic = ["auto"]
scope = ["model"]
threads = [0]
memory_format = ["preserve"]
memory_budget = ["all"]
activations = ["kept"]
micro_batches = [1]
"""


def main() -> None:
    """Record each workload, or run as one of its child processes."""
    if sys.argv[1:2] == ["one"]:
        print(json.dumps(one(*sys.argv[2:])))
        return
    if sys.argv[1:2] == ["paired"]:
        print(json.dumps(paired(*sys.argv[2:])))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=["gates", "glu"])
    parser.add_argument("--budget", default="5m")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    from record import results_of

    path = results_of(HERE / "delivery", device_type())
    for name in arguments.only:
        with tempfile.TemporaryDirectory() as directory:
            row = {"workload": name, **recorded(name, arguments.budget, arguments.rounds, Path(directory))}
        with path.open("a") as stream:
            stream.write(json.dumps(row) + "\n")
        print(json.dumps({key: value for key, value in row.items() if key != "rounds"}))


class Gates(nn.Module):
    """A recurrence whose state, [batch, width], is updated element by element, and a linear layer."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.factors = nn.ParameterList(nn.Parameter(torch.randn(width) / 2) for _ in range(4))
        self.leave = nn.Linear(width, classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        state, (opens, shift, enters, keeps) = torch.zeros_like(inputs[:, 0]), self.factors
        for now in inputs.unbind(1):
            gate = torch.sigmoid(now * opens + shift)
            state = gate * state + (1 - gate) * torch.tanh(now * enters + state * keeps)
        return self.leave(state)


class Block(nn.Module):
    """A root mean square normalization and a gated linear unit of samples, [batch, width], with a residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.into, self.out = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        normed = self.scale * inputs * torch.rsqrt(inputs.square().mean(-1, keepdim=True) + 1e-6)
        gate, value = self.into(normed).chunk(2, -1)
        return inputs + self.out(functional.silu(gate) * value)  # type: ignore[no-any-return]


def gates(device: str) -> Workload:
    """64 sequences of 24 steps of 1024."""
    model = Gates(1024, 10).to(device).train()
    batches = [(torch.randn(64, 24, 1024, device=device), torch.randint(10, (64,), device=device)) for _ in range(4)]
    return Workload(model, tuple(batches), classified, sgd, None, device)


def glu(device: str) -> Workload:
    """4,096 samples of 64."""
    model = nn.Sequential(*(Block(64) for _ in range(16)), nn.Linear(64, 1)).to(device).train()
    inputs = (torch.randn(4096, 64, device=device) for _ in range(4))
    batches = tuple((one, one.sum(1, keepdim=True).tanh()) for one in inputs)
    return Workload(model, batches, fitted, partial(AdamW, lr=1e-3), None, device)


def work_of(name: str, device: str) -> Workload:
    """Return a workload, the same at every call."""
    torch.manual_seed(0)
    own = {"gates": gates, "glu": glu}.get(name)
    return workload(name, device) if own is None else own(device)


def recorded(name: str, budget: str, rounds: int, directory: Path) -> dict[str, Any]:
    """Tune the workload, run its processes in turn, and return the row."""
    rec = directory / "rec"
    label = tuned(work_of(name, device_type()), budget, rec, directory)
    found = [{way: process("one", name, way, rec) for way in ("prepared", "pasted")} for _ in range(rounds)]
    full = {way: statistics.median(each[way]["full_s"] for each in found) for way in found[0]}
    ratios = sorted((process("paired", name, rec) for _ in range(rounds)), key=lambda each: each["value"])
    losses = [each[way]["losses"] for each in found for way in each]
    return {
        "label": label,
        "full_s": full,
        "start_from_cache_over_cold": full["prepared"] / full["pasted"],
        "prepared_over_pasted": ratios[len(ratios) // 2],
        "in_each_process": [each["value"] for each in ratios],
        "losses_differ_by": max(abs(a / b - 1) for own in losses for a, b in zip(own, losses[0], strict=True)),
        "rounds": found,
    }


def tuned(work: Workload, budget: str, rec: Path, directory: Path) -> str:
    """Tune with torch.compile as the only runtime besides eager; return the label of the winner."""
    strategy = directory / "compiled.toml"
    strategy.write_text(_COMPILED)
    training = autocompile.Training(loss=work.loss, optimizer=work.optimizer, clip_norm=work.clip_norm)
    goal = autocompile.Goal(calls=10**9)
    found = autocompile.optimize(
        work.model, list(work.batches), budget=budget, training=training, goal=goal, output=rec,
        strategy=str(strategy), progress=False,
    )  # fmt: skip
    return str(found.document.winner.label)


def process(part: str, *arguments: str | Path) -> dict[str, Any]:
    """Run one part of this study in a process with an empty compiler cache; return what it printed."""
    with tempfile.TemporaryDirectory() as cache:
        empty = {
            variable: f"{cache}/{variable.lower()}" for variable in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
        }
        command = [sys.executable, __file__, part, *map(str, arguments)]
        done = subprocess.run(command, env={**os.environ, **empty}, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def one(name: str, way: str, rec: str) -> dict[str, Any]:
    """Build the loop and do the steps."""
    work = work_of(name, device_type())
    torch.manual_seed(1)
    began = time.perf_counter()
    loop, marks, losses = built(work, way, rec), [time.perf_counter()], []
    for batch in itertools.islice(itertools.cycle(work.batches), STEPS):
        losses.append(float(loop.step(batch)))
        marks.append(time.perf_counter())
    took = [end - start for start, end in itertools.pairwise(marks)]
    usual = statistics.median(took[STEPS // 2 :])
    first = next(number for number, step in enumerate(took) if step <= _FULL * usual)
    return {"full_s": marks[first + 1] - began, "step_ms": 1e3 * usual, "losses": losses}


def paired(name: str, rec: str) -> dict[str, float]:
    """Return the time of a prepared step divided by that of a pasted one, with its interval, from alternating steps."""
    device, threads = device_type(), torch.get_num_threads()
    loops = {way: built(work_of(name, device), way, rec) for way in ("pasted", "prepared")}
    for batch in itertools.islice(itertools.cycle(work_of(name, device).batches), STEPS):
        for loop in loops.values():
            loop.step(batch)
    sides = (timed(loop, work_of(name, device).batches, device, threads) for loop in loops.values())
    ratio = time_pairs(*sides, Timing(PRECISION, _SECONDS), seed=0).ratio
    return {"value": ratio.value, "low": ratio.low, "high": ratio.high}


def built(work: Workload, way: str, rec: str) -> Loop:
    """Return the loop of a way."""
    optimizer = work.optimizer(list(work.model.parameters()))
    if way == "pasted":
        pasted: dict[str, Any] = {"model": work.model, "optimizer": optimizer, "loss": work.loss}
        exec((Path(rec) / "snippet.py").read_text(), pasted)
        return Loop(work.model, pasted["step"])
    return Loop(work.model, autocompile.prepare(rec, work.model, optimizer, loss=work.loss))


if __name__ == "__main__":
    main()
