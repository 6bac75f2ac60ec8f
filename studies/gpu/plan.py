"""The steps to run on a machine with a GPU, in parts whose steps fit into a call of ten minutes. No torch.

A part has several steps. Each step is a separate process, and its result is saved when it ends. Recorded steps are not
run again, so each call continues where the previous call stopped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TESTS = "tests"
# Each study records one row per combination of these keys. The keys tell which steps are done.
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
# Assumed seconds of a step before one has been timed: a guess for a machine like an H100, not measured yet.
_TAKES_S = {TESTS: 240.0, "portfolio": 300.0, "training": 270.0, "startup": 240.0, "trust": 120.0}


@dataclass(frozen=True)
class Step:
    """One process: its `arguments` for Python, and the seconds that it is expected to take.

    `needs`: the rows that must be recorded for the step to be done, each as the values of its study's keys.
    """

    part: str
    name: str
    arguments: tuple[str, ...]
    takes_s: float
    needs: tuple[tuple[Any, ...], ...] = ()

    def is_done(self, recorded: Collection[tuple[Any, ...]]) -> bool:
        """Return whether all rows of the step are recorded."""
        return bool(self.needs) and all(need in recorded for need in self.needs)


def steps_of(part: str, results: str, tests: Sequence[str] = ()) -> list[Step]:
    """Return the steps of a part, with results in the directory `results`; `tests` are the test files."""
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
        # The last start that this step records.
        last = (name, "autocompile.load, no compiler on PATH", 0)
        yield Step("startup", name, arguments, _TAKES_S["startup"], (last,))


def _trust(results: str) -> Iterator[Step]:
    for first in range(0, _VERDICTS, _VERDICTS_A_STEP):
        upto = first + _VERDICTS_A_STEP
        arguments = ("studies/trust/aa.py", "--verdicts", str(upto), "--results", results)
        needs = tuple((number,) for number in range(first, upto))
        yield Step("trust", f"verdicts up to {upto}", arguments, _TAKES_S["trust"], needs)


def recorded(part: str, rows: Sequence[Mapping[str, Any]]) -> set[tuple[Any, ...]]:
    """Return the values of the study's keys in its rows."""
    keys = _KEYS[part]
    return {tuple(row[key] for key in keys) for row in rows if all(key in row for key in keys)}


def fits(step: Step, took_s: Sequence[float], left_s: float) -> bool:
    """Return whether the time that is left suffices for the slowest step so far, or else for the expected time."""
    return max(took_s, default=step.takes_s) <= left_s
