"""What "best" means for this user."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal, get_args

from autocompile.core.errors import InvalidValue
from autocompile.core.serde import Record
from autocompile.core.tolerance import Tolerance, exactly, published_tolerance
from autocompile.core.units import parse_duration, parse_limit, parse_size
from autocompile.core.workload import ScriptEntry

Deploy = Literal["jit", "artifact"]
Objective = Literal["time", "latency", "throughput"]
Batch = Literal["fixed", "tune"] | Sequence[int]
Duration = str | float | timedelta
Limit = str | timedelta

PERCENTILES = (50, 90, 95, 99)
_DEFAULT_HORIZON = "1h"
# A quantile rests on so many calls beyond it.
_BEYOND = 5


@dataclass(frozen=True)
class Goal:
    """What is best, under which constraints, and what still counts as correct.

    `calls`: how many calls a process makes; or `horizon`, how long it lives, which is as many as the baseline
    makes in that time (default "1h"). `deploy`: how production starts, and so what start-up costs: `artifact` (the
    default), the load of what was packed, which is compiled once for all `processes` that load it; or `jit`, the cold
    compile in every process. `objective`: `time`, the amortized seconds a sample,
    start-up included; `latency`, that of single calls at `percentile` (default 50); `throughput`, samples a
    second. Neither of the latter counts start-up.

    `max_latency` (of a call, at `percentile`), `max_startup` and `max_memory` (the peak) are constraints. Limits
    of time have a unit, as "5ms", "10s" or a timedelta: a bare number is refused, as it could mean seconds or
    milliseconds. The horizon is "30m", "1h30m", seconds or a timedelta; sizes are "512MiB", "8GB" or bytes.
    `batch`: `fixed` takes the samples as they are, `tune` searches how many go into a call, a sequence tries these.

    `tolerance`: the largest root mean square error of an output, relative to the reference's root mean
    square; None takes the published limits of the candidate's precision. `metric`: called with the
    model's output, gives a number of which more is better; then a candidate passes if its mean over the
    checked calls is at most `max_drop` below the baseline's, instead of by tolerance.

    Raises InvalidValue for what cannot be read, is not positive, or contradicts itself.
    """

    calls: int | None = None
    horizon: Duration | None = None
    deploy: Deploy = "artifact"
    processes: int = 1
    objective: Objective = "time"
    percentile: int | None = None
    max_latency: Limit | None = None
    max_startup: Limit | None = None
    max_memory: str | int | None = None
    batch: Batch = "fixed"
    tolerance: float | None = None
    metric: Callable[[Any], float] | None = None
    max_drop: float = 0.0

    def __post_init__(self) -> None:
        self._check_words()
        self._check_horizon()
        self._check_constraints()
        self._check_batch()
        self._check_acceptance()

    def _check_words(self) -> None:
        for name, known in (("deploy", get_args(Deploy)), ("objective", get_args(Objective))):
            value = getattr(self, name)
            if value not in known:
                raise InvalidValue(f"{value!r} is unknown", where=name, remedy=f"give one of {', '.join(known)}")

    def _check_horizon(self) -> None:
        if self.calls is not None and (type(self.calls) is not int or self.calls < 1):
            raise InvalidValue(f"{self.calls} calls is not a number of calls", where="calls", remedy="give 1 or more")
        if self.calls is not None and self.horizon is not None:
            raise InvalidValue("calls and a horizon are two answers to one question", where="goal", remedy="give one")
        if self.objective != "time" and (self.calls is not None or self.horizon is not None):
            name = "calls" if self.calls is not None else "horizon"
            raise InvalidValue(
                f"the objective {self.objective} counts no start-up, which could be spread over calls",
                where=name,
                remedy=f"drop {name}, or take the objective time",
            )
        _ = self.horizon_s
        if type(self.processes) is not int or self.processes < 1:
            raise InvalidValue(
                f"{self.processes} is not a number of processes", where="processes", remedy="give 1 or more"
            )
        if self.processes > 1 and self.deploy == "jit":
            raise InvalidValue(
                "every process compiles for itself where deploy is 'jit'", where="processes", remedy="drop processes"
            )

    def _check_constraints(self) -> None:
        for name in ("max_latency", "max_startup"):
            if (value := getattr(self, name)) is not None:
                parse_limit(value, where=name)
        if self.max_memory is not None:
            parse_size(self.max_memory, where="max_memory")
        if self.percentile is None:
            return
        if type(self.percentile) is not int or self.percentile not in PERCENTILES:
            known = ", ".join(map(str, PERCENTILES))
            raise InvalidValue(f"{self.percentile} is not measured", where="percentile", remedy=f"give one of {known}")
        if self.objective != "latency" and self.max_latency is None:
            raise InvalidValue(
                "there is no latency that it could be of",
                where="percentile",
                remedy="give max_latency, or take the objective latency",
            )

    def _check_batch(self) -> None:
        check_batch(self.batch)
        if self.objective == "latency" and self.batch != "fixed":
            raise InvalidValue(
                "the smallest batch always has the lowest latency",
                where="batch",
                remedy="take the objective throughput with max_latency, or the batch fixed",
            )

    def _check_acceptance(self) -> None:
        if self.tolerance is not None and not self.tolerance > 0:
            raise InvalidValue(f"{self.tolerance} is no tolerance", where="tolerance", remedy="give one like 1e-3")
        if not self.max_drop >= 0:
            raise InvalidValue(f"{self.max_drop} is no drop", where="max_drop", remedy="give 0 or more")
        if self.max_drop and self.metric is None:
            raise InvalidValue("there is no metric that could drop", where="max_drop", remedy="give metric= too")
        if self.metric is not None and self.tolerance is not None:
            raise InvalidValue("a metric takes the place of a tolerance", where="goal", remedy="give one of the two")
        if self.metric is not None and not callable(self.metric):
            raise InvalidValue(f"a {type(self.metric).__name__} cannot be called", where="metric")

    def for_training(self, batch: str | Sequence[int] = "fixed") -> Goal:
        """The same for steps of training, which are not packed: every process compiles for itself (`jit`).

        `batch`: which batches may be trained on, as the training has it. Raises InvalidValue for what has no meaning
        for a step.
        """
        if self.metric is not None:
            raise InvalidValue("is of a model's outputs, and a step of training has none", where="metric")
        said: Any = batch if isinstance(batch, str) else tuple(dict.fromkeys(batch))
        if self.batch != "fixed" and said not in (self.batch, self.batch_sizes):
            remedy = "say so of the training, as in Training(batch='tune'), or take the batch fixed"
            raise InvalidValue("what is learned changes with it", where="batch", remedy=remedy)
        if self.processes > 1:
            raise InvalidValue("every process compiles for itself when it trains", where="processes", remedy="drop it")
        return replace(self, deploy="jit", batch=said)

    def for_script(self, seen: ScriptEntry) -> Goal:
        """The same, for as many calls as the script makes, where that is known and nothing else was asked for."""
        is_open = self.calls is None and self.horizon is None and self.objective == "time"
        return replace(self, calls=seen.calls) if seen.whole and is_open else self

    @property
    def loads_artifacts(self) -> bool:
        """Whether production starts from what was packed."""
        return self.deploy == "artifact"

    @property
    def horizon_s(self) -> float:
        """The horizon in seconds."""
        return parse_duration(_DEFAULT_HORIZON if self.horizon is None else self.horizon, where="horizon")

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The sizes asked for, in order; none if they are to be found, or the batch is fixed."""
        return () if isinstance(self.batch, str) else tuple(dict.fromkeys(self.batch))

    def calls_for(self, baseline_s: float) -> float:
        """How many calls a process makes, given one baseline call's seconds."""
        return float(self.calls) if self.calls is not None else max(1.0, self.horizon_s / baseline_s)

    def check_horizon(self, baseline_s: float) -> None:
        """Raises InvalidValue for a horizon that is shorter than one call."""
        if self.calls is None and self.horizon_s < baseline_s:
            raise InvalidValue(
                f"{self.horizon_s:g} s is shorter than one call, which takes {baseline_s:.3g} s",
                where="horizon",
                remedy="give a longer one, or calls",
            )

    @property
    def calls_to_time(self) -> int:
        """How many calls a percentile takes to be told: some that lie beyond it."""
        return 0 if self.percentile is None else int(_BEYOND / (1 - self.percentile / 100))

    @property
    def is_of_single_calls(self) -> bool:
        """Whether it takes the time of single calls, from start to end, and not how many are done in a time."""
        return self.objective != "throughput" or self.max_latency is not None

    def spread_over(self, calls: float) -> float:
        """Over how many calls start-up is spread when candidates are ranked; infinity where it does not count."""
        return calls if self.objective == "time" else math.inf

    def tolerance_for(self, precision: str) -> Tolerance:
        """The limits for a candidate of this precision ("" is the model's own)."""
        return published_tolerance(precision) if self.tolerance is None else exactly(self.tolerance)

    @property
    def acceptance_digest(self) -> str:
        """Eight letters; equal for goals that accept the same outputs: what one accepted, another may not."""
        code = getattr(self.metric, "__code__", None)
        parts = (self.tolerance, self.max_drop, code.co_code.hex() if code else repr(self.metric))
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:8]

    @property
    def digest(self) -> str:
        """Eight letters; equal for goals that rank alike: what one study's sampler learned is not another's."""
        ranked_by = (
            self.objective, self.deploy, self.processes, self.calls, self.horizon_s, self.percentile,
            self.max_latency, self.max_startup, self.max_memory, self.batch,
        )  # fmt: skip
        return hashlib.sha256(repr(ranked_by).encode()).hexdigest()[:8]

    def entry(self) -> GoalEntry:
        """The goal as the document has it."""
        return GoalEntry(
            objective=self.objective,
            deploy=self.deploy,
            processes=self.processes,
            calls=self.calls,
            horizon_s=None if self.calls is not None else self.horizon_s,
            percentile=self.percentile or 50,
            max_latency_ms=_seconds(self.max_latency, "max_latency", scale=1e3),
            max_startup_s=_seconds(self.max_startup, "max_startup"),
            max_memory_bytes=None if self.max_memory is None else parse_size(self.max_memory),
            batch=self.batch if isinstance(self.batch, str) else self.batch_sizes,
            tolerance=self.tolerance,
            metric="" if self.metric is None else getattr(self.metric, "__name__", type(self.metric).__name__),
            max_drop=self.max_drop,
        )


def check_batch(batch: Any) -> None:
    """Raises InvalidValue where it is none of `fixed`, `tune`, or sizes."""
    if isinstance(batch, str):
        if batch not in ("fixed", "tune"):
            raise InvalidValue(f"{batch!r} is unknown", where="batch", remedy="give fixed, tune, or sizes")
        return
    if not isinstance(batch, Sequence) or not all(type(n) is int and n > 0 for n in batch):
        raise InvalidValue(f"{batch!r} holds no batch sizes", where="batch", remedy="give some like [1, 8, 32]")
    if not batch:
        raise InvalidValue("holds no size", where="batch", remedy="give some like [1, 8, 32]")


def batch_from(text: str) -> Batch:
    """What the command line calls a batch: `fixed`, `tune`, or sizes like `1,8,32`. Raises InvalidValue."""
    if text in ("fixed", "tune"):
        return text  # type: ignore[return-value]
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as fault:
        raise InvalidValue(f"cannot read {text!r}", where="batch", remedy="give fixed, tune, or 1,8,32") from fault


def _seconds(limit: Limit | None, where: str, *, scale: float = 1.0) -> float | None:
    return None if limit is None else parse_limit(limit, where=where) * scale


class GoalEntry(Record, frozen=True):
    """A goal as data, read and with its defaults: see `Goal`. What was not asked for is null."""

    objective: Objective
    deploy: Deploy
    calls: int | None
    horizon_s: float | None
    percentile: int
    max_latency_ms: float | None
    max_startup_s: float | None
    max_memory_bytes: int | None
    batch: str | tuple[int, ...]
    tolerance: float | None
    metric: str
    max_drop: float
    processes: int = 1
