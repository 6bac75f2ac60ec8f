"""Strategy presets: TOML files that narrow and order what the dimensions declare."""

from __future__ import annotations

import difflib
import hashlib
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import msgspec

from autocompile.core.candidate import Value
from autocompile.core.errors import InvalidStrategy
from autocompile.core.job import Timing
from autocompile.core.serde import Record
from autocompile.runtime.catalogue import dimensions, known_values


class SearchRules(Record, forbid_unknown_fields=True, frozen=True):
    """How candidates are chosen.

    `sampler` is autocompile's own `policy`, or one of Optuna's samplers, `tpe` and `random`. `random_trials` is the
    number of random trials with which TPE starts. `max_trials` limits the number of trials.
    """

    sampler: Literal["policy", "tpe", "random"] = "policy"
    random_trials: int = 8
    max_trials: int = 60


class Stages(Record, forbid_unknown_fields=True, frozen=True):
    """Shares of the budget, in 0..1, that are reserved; the search has the rest.

    `packing` is a minimum: where compiling took long, more is reserved (`search/reserve.py`).
    """

    finals: float = 0.3
    packing: float = 0.15

    @property
    def after_search(self) -> float:
        """The share that is reserved for the steps after the search."""
        return self.finals + self.packing


class Screening(Record, forbid_unknown_fields=True, frozen=True):
    """How precisely the search times: see `core.job.Timing`."""

    precision: float = 0.05
    limit_s: float = 4.0

    @property
    def timing(self) -> Timing:
        """The timing in the form that a child process takes."""
        return Timing(precision=self.precision, limit_s=self.limit_s)


class Finals(Record, forbid_unknown_fields=True, frozen=True):
    """How many candidates, besides the baseline and plain `torch.compile`, run in how many new processes each.

    Candidates that are then not distinguishable from the best run in further processes, up to `at_most`, if that is
    more. So do leading candidates that were timed while other programs used the host.
    """

    candidates: int = 3
    processes: int = 3
    at_most: int = 0
    precision: float = 0.015
    limit_s: float = 6.0

    @property
    def timing(self) -> Timing:
        """The timing in the form that a child process takes."""
        return Timing(precision=self.precision, limit_s=self.limit_s)


class Strategy(Record, forbid_unknown_fields=True, frozen=True):
    """How to search. `name` and `digest` are not in the file: they identify the strategy in the recommendation."""

    summary: str = ""
    search: SearchRules = SearchRules()
    dimensions: dict[str, tuple[Value, ...]] = {}
    seeds: tuple[dict[str, Value], ...] = ()
    stages: Stages = Stages()
    screening: Screening = Screening()
    finals: Finals = Finals()
    name: str = ""
    digest: str = ""


def shipped_strategies() -> tuple[str, ...]:
    """Return the names of the presets that come with the package."""
    files = resources.files("autocompile.strategies").iterdir()
    return tuple(sorted(Path(file.name).stem for file in files if file.name.endswith(".toml")))


def load_strategy(name_or_path: str) -> Strategy:
    """Load a shipped preset by name, or a TOML file by path.

    Raises InvalidStrategy if there is no strategy of that name, and for every key or value that cannot be used, with
    the nearest known one.
    """
    text = _text_of(name_or_path)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        raise InvalidStrategy(f"is not TOML: {fault}", where=name_or_path) from fault
    _check_keys(table, name_or_path)
    try:
        strategy = msgspec.convert(table, Strategy)
    except msgspec.ValidationError as fault:
        raise InvalidStrategy(str(fault), where=name_or_path) from fault
    _check_values(strategy, name_or_path)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return msgspec.structs.replace(strategy, name=Path(name_or_path).stem, digest=f"sha256:{digest}")


def _text_of(name_or_path: str) -> str:
    if name_or_path.endswith(".toml"):
        try:
            return Path(name_or_path).read_text()
        except OSError as fault:
            raise InvalidStrategy(f"cannot be read: {fault.strerror}", where=name_or_path) from fault
    if name_or_path not in shipped_strategies():
        nearest = _nearest(name_or_path, shipped_strategies())
        raise InvalidStrategy(
            f"there is no strategy {name_or_path!r}",
            where="strategy",
            remedy=f"did you mean {nearest!r}? The path of your own file must end in .toml",
        )
    return (resources.files("autocompile.strategies") / f"{name_or_path}.toml").read_text()


_SECTIONS: dict[str, Any] = {"search": SearchRules, "stages": Stages, "screening": Screening, "finals": Finals}


def _check_keys(table: dict[str, Any], where: str) -> None:
    known = [f for f in Strategy.__struct_fields__ if f not in ("name", "digest")]
    _check_known(table, known, where, "key")
    for section, kind in _SECTIONS.items():
        _check_known(table.get(section, {}), list(kind.__struct_fields__), f"{where} [{section}]", "key")
    names = [dimension.name for dimension in dimensions()]
    _check_known(table.get("dimensions", {}), names, f"{where} [dimensions]", "dimension")
    for seed in table.get("seeds", ()):
        _check_known(seed, names, f"{where} [[seeds]]", "dimension")


def _check_known(table: Any, known: list[str], where: str, noun: str) -> None:
    if not isinstance(table, dict):
        raise InvalidStrategy(f"is a {type(table).__name__}, not a table", where=where)
    for key in table:
        if key not in known:
            raise InvalidStrategy(
                f"unknown {noun} {key!r}", where=where, remedy=f"did you mean {_nearest(key, known)!r}?"
            )


def _check_values(strategy: Strategy, where: str) -> None:
    for name in ("finals", "packing"):
        share = getattr(strategy.stages, name)
        if not 0 <= share < 1:
            raise InvalidStrategy(
                f"{name} = {share} is not a share of the budget",
                where=f"{where} [stages]",
                remedy="give a value from 0 to below 1",
            )
    if strategy.stages.after_search >= 1:
        raise InvalidStrategy(
            f"finals and packing together take {strategy.stages.after_search:g} of the budget",
            where=f"{where} [stages]",
            remedy="leave something for the search",
        )
    for name, values in strategy.dimensions.items():
        _check_known_values(name, values, where)
    for seed in strategy.seeds:
        for name, value in seed.items():
            _check_known_values(name, (value,), where)
    if strategy.search.max_trials < 1:
        raise InvalidStrategy("max_trials must be 1 or more", where=f"{where} [search]")


def _check_known_values(name: str, wanted: tuple[Value, ...], where: str) -> None:
    """Raise InvalidStrategy if a dimension can never take one of these values; threads and batch take any number."""
    known = known_values(name)
    for value in wanted:
        if name not in _MACHINE_DEPENDENT and value not in known:
            nearest = _nearest(str(value), [str(choice) for choice in known])
            raise InvalidStrategy(f"{name} has no value {value!r}", where=where, remedy=f"did you mean {nearest!r}?")


# Dimensions that take any number, as it depends on the machine, the model or the goal.
_MACHINE_DEPENDENT = ("threads", "batch")


def _nearest(name: str, known: tuple[str, ...] | list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    return close[0] if close else known[0]
