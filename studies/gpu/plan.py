"""What is run on a machine with a GPU, in parts that each fit into a call of ten minutes. No torch.

A part is a number of steps, each a process of its own whose result is kept when it ends, so that a call goes on where
the one before has stopped: what is recorded is not run again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TESTS = "tests"
# Each study records one line for each of these, by which what is done is known.
_KEYS = {
    "portfolio": ("workload",),
    "training": ("workload",),
    "startup": ("model", "way", "round"),
    "trust": ("number",),
}
STUDIES = tuple(_KEYS)
PARTS = (TESTS, *STUDIES)

_PORTFOLIO = ("vit", "decoder", "cnn", "mlp", "unet")
_TRAINING = ("gpt", "vit", "resnet18_small", "transformer")
_STARTUP = ("gpt", "mobilenet")
_WAYS = 6
_ROUNDS = 2
_VERDICTS = 12
_VERDICTS_A_STEP = 3
# Where nothing has shown how long a step takes: seconds on one H100-like machine, guessed; none has run it yet.
_TAKES_S = {TESTS: 240.0, "portfolio": 300.0, "training": 270.0, "startup": 240.0, "trust": 120.0}


@dataclass(frozen=True)
class Step:
    """One process: its `arguments` for Python, and how many seconds it is expected to take.

    `needs`: what has to be recorded for it to be done, each as the values of its study's keys.
    """

    part: str
    name: str
    arguments: tuple[str, ...]
    takes_s: float
    needs: tuple[tuple[Any, ...], ...] = ()

    def is_done(self, recorded: Collection[tuple[Any, ...]]) -> bool:
        """Whether all that it records is there."""
        return bool(self.needs) and all(need in recorded for need in self.needs)


def steps_of(part: str, results: str, tests: Sequence[str] = ()) -> list[Step]:
    """The steps of a part, whose results lie in the directory `results`; `tests` are files of tests."""
    if part == TESTS:
        return [Step(TESTS, path, (path,), _TAKES_S[TESTS]) for path in tests]
    return list({"portfolio": _portfolio, "training": _training, "startup": _startup, "trust": _trust}[part](results))


def _portfolio(results: str) -> Iterator[Step]:
    for name in _PORTFOLIO:
        effort = ("--budget", "90s", "--again", "1")
        arguments = ("studies/portfolio/record.py", "--only", name, *effort, "--results", results)
        yield Step("portfolio", name, arguments, _TAKES_S["portfolio"], ((name,),))


def _training(results: str) -> Iterator[Step]:
    for name in _TRAINING:
        effort = ("--budget", "90s", "--seconds", "5")
        arguments = ("studies/training/record.py", "--only", name, *effort, "--results", results)
        yield Step("training", name, arguments, _TAKES_S["training"], ((name,),))


def _startup(results: str) -> Iterator[Step]:
    for name in _STARTUP:
        effort = ("--rounds", str(_ROUNDS), "--budget", "90s")
        arguments = ("studies/startup/record.py", "--models", name, *effort, "--results", results)
        # The last start that it records.
        last = (name, "autocompile.load, no compiler on PATH", 0)
        yield Step("startup", name, arguments, _TAKES_S["startup"], (last,))


def _trust(results: str) -> Iterator[Step]:
    for first in range(0, _VERDICTS, _VERDICTS_A_STEP):
        upto = first + _VERDICTS_A_STEP
        arguments = ("studies/trust/aa.py", "--verdicts", str(upto), "--results", results)
        needs = tuple((number,) for number in range(first, upto))
        yield Step("trust", f"verdicts up to {upto}", arguments, _TAKES_S["trust"], needs)


def recorded(part: str, rows: Sequence[Mapping[str, Any]]) -> set[tuple[Any, ...]]:
    """What a study's rows hold, as the values of its keys."""
    keys = _KEYS[part]
    return {tuple(row[key] for key in keys) for row in rows if all(key in row for key in keys)}


def fits(step: Step, took_s: Sequence[float], left_s: float) -> bool:
    """Whether it is worth starting: whether the slowest step so far, or what is expected of one, fits."""
    return max(took_s, default=step.takes_s) <= left_s
