"""Measure what the hooks of `autocompile run` cost per step, by installing and removing them in one process.

    python studies/scripts/overhead.py                    # about two minutes; run nothing else meanwhile
    python studies/scripts/table.py > studies/scripts/README.md

The recommendation is eager, so it changes nothing. Therefore, two blocks of the same steps, one with the hooks and one
without, differ only by the cost of the hooks. The order within each pair is random. One row each is appended to
results/ for steps of inference, for steps of training, and for calls of a module that computes almost nothing. To
record one again, delete its row.
"""

import argparse
import gc
import json
import math
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from record import results_in
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from autocompile import Training
from autocompile.artifact.fitting import AppliedScript
from autocompile.artifact.integrity import write_manifest
from autocompile.artifact.mismatch import requirements
from autocompile.artifact.scripted import ServedScript
from autocompile.artifact.trained_script import TrainedScript
from autocompile.core.manifest import Manifest
from autocompile.core.plan import Plan
from autocompile.core.workload import TrainingEntry
from autocompile.runtime.catalogue import kind_of
from autocompile.workload.identity.facts import identity_of
from autocompile.workload.training.entry import entry_of

HERE = Path(__file__).parent
# A block is long enough that the resolution of the clock and a garbage collection do not matter.
BLOCK_S = 0.25
FEWEST = 4


class Net(nn.Module):
    """A small convolutional network, a few milliseconds per call on two cores."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 32, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(32, 10),
        )  # fmt: skip

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return scores of ten classes."""
        return self.layers(images)


class Little(nn.Module):
    """A module that computes almost nothing, so its calls show the hooks alone."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the input."""
        return x


def infers(model: nn.Module, batches: list[Any]) -> Callable[[int], None]:
    """Return a function that makes a number of calls, as an inference loop does."""

    def steps(count: int) -> None:
        with torch.no_grad():
            for number in range(count):
                model(batches[number % len(batches)])

    return steps


def trains(model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader[Any]) -> Callable[[int], None]:
    """Return a function that does a number of steps, as a training loop does, including data loading."""

    def steps(count: int) -> None:
        done = 0
        while done < count:
            for images, classes in loader:
                optimizer.zero_grad()
                cross_entropy(model(images), classes).backward()
                optimizer.step()
                done += 1
                if done == count:
                    return

    return steps


def unchanged(directory: Path, model: nn.Module, training: TrainingEntry | None) -> None:
    """Write a recommendation that changes nothing."""
    write_manifest(
        directory,
        Manifest(
            manifest_version=5,
            label="eager",
            plan=Plan(),
            device_type="cpu",
            identity=identity_of(model),
            serving=kind_of(Plan()).unpacked,
            absences=(),
            requirements=requirements("eager", with_python=True, device_type="cpu"),
            training=training,
        ),
    )


def inference(directory: Path) -> tuple[AppliedScript[Any], Callable[[int], None]]:
    """Return the hooks and the steps of a script that infers."""
    model = Net().eval()
    unchanged(directory, model, None)
    return ServedScript(directory), infers(model, [torch.randn(16, 3, 32, 32) for _ in range(8)])


def little(directory: Path) -> tuple[AppliedScript[Any], Callable[[int], None]]:
    """Return the hooks and the steps of a script whose calls take almost no time."""
    model = Little().eval()
    unchanged(directory, model, None)
    return ServedScript(directory), infers(model, [torch.ones(1)])


def training(directory: Path) -> tuple[AppliedScript[Any], Callable[[int], None]]:
    """Return the hooks and the steps of a script that trains."""
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    given = Training(loss=lambda model, batch: cross_entropy(model(batch[0]), batch[1]), optimizer=optimizer)
    unchanged(directory, model, entry_of(model, given)[0])
    served = TrainedScript(directory)
    with served.applied():  # the hooks must see how the optimizer is made
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = TensorDataset(torch.randn(256, 3, 32, 32), torch.randint(10, (256,)))
    return served, trains(model, optimizer, DataLoader(data, batch_size=8))


SCRIPTS: dict[str, Callable[[Path], tuple[AppliedScript[Any], Callable[[int], None]]]] = {
    "inference": inference,
    "training": training,
    "a call by itself": little,
}


def main() -> None:
    """Record what is not recorded yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=SCRIPTS, nargs="*", default=list(SCRIPTS))
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--results", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    path = results_in(arguments.results)
    known = {json.loads(line).get("overhead") for line in path.read_text().splitlines()}
    for name in (name for name in arguments.only if name not in known):
        with tempfile.TemporaryDirectory() as directory:
            row = {"overhead": name, **measured(*SCRIPTS[name](Path(directory)), arguments.pairs)}
        with path.open("a") as stream:
            stream.write(json.dumps(row) + "\n")
        print(name, told(row), flush=True)


def measured(served: AppliedScript[Any], steps: Callable[[int], None], pairs: int) -> dict[str, Any]:
    """Return the milliseconds per step of each block, in pairs: with the hooks and without."""
    with served.applied():  # the first time also loads the recommendation
        steps(FEWEST)
    if not served.services():
        raise SystemExit(f"the recommendation does not fit: {served.others}")
    began = time.perf_counter()
    steps(FEWEST)
    count = max(FEWEST, math.ceil(BLOCK_S * FEWEST / (time.perf_counter() - began)))
    drawn = random.Random(0)  # for the order of the blocks
    rounds = []
    for _ in range(pairs):
        found = {}
        for way in drawn.sample(["with", "without"], 2):
            with served.applied() if way == "with" else nullcontext():
                found[way] = block(steps, count)
        rounds.append(found)
    return {"steps": count, "rounds": rounds}


def block(steps: Callable[[int], None], count: int) -> float:
    """Return the milliseconds per step of one block."""
    gc.collect()
    steps(FEWEST)
    began = time.perf_counter()
    steps(count)
    return (time.perf_counter() - began) / count * 1e3


def told(row: dict[str, Any]) -> str:
    """Summarize a row for the terminal."""
    ratio = statistics.median(one["with"] / one["without"] for one in row["rounds"])
    more = statistics.median(one["with"] - one["without"] for one in row["rounds"])
    return f"{statistics.median(one['without'] for one in row['rounds']):.4g} ms: {ratio:.4f}x, {1e3 * more:+.2f} µs"


if __name__ == "__main__":
    main()
