"""The goal: what "best" means for this user."""

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
from autocompile.core.workload import GenerationEntry, ScriptEntry

Deploy = Literal["jit", "artifact"]
Objective = Literal["time", "latency", "throughput"]
Batch = Literal["fixed", "tune"] | Sequence[int]
Duration = str | float | timedelta
Limit = str | timedelta

PERCENTILES = (50, 90, 95, 99)
_DEFAULT_HORIZON = "1h"
# A quantile is reported only if at least this many of the timed calls lie beyond it.
_BEYOND = 5


@dataclass(frozen=True)
class Goal:
    """What to optimize, under which constraints, and which outputs count as correct.

    Args:
        calls: How many calls a process makes. Start-up is amortized over them.
        horizon: In place of `calls`: how long a process runs ("30m", "1h30m", seconds or a `timedelta`; default "1h").
            It makes as many calls as the baseline makes in that time.
        deploy: How production starts. "artifact" loads the packed artifact, which was compiled once for all
            `processes`; "jit" compiles in every process.
        processes: How many processes load the artifact, and share the cost of compiling it.
        objective: "time" is the amortized time per sample, start-up included. "latency" is the latency of single calls
            at `percentile`, and "throughput" is samples per second; both ignore start-up.
        percentile: 50 (the default), 90, 95 or 99.
        max_latency: The largest latency of a call at `percentile`. Limits of time need a unit: "5ms", "10s" or a
            `timedelta`. A bare number is refused, because it could mean seconds or milliseconds.
        max_startup: The longest start-up, with a unit.
        max_memory: The largest peak memory: "512MiB", "8GB", or bytes.
        batch: Samples per call: "fixed" uses the samples as given, "tune" searches for the best number, and a sequence
            lists the numbers to try.
        tolerance: The largest root mean square error of an output, relative to the reference's root mean square. By
            default, the published limits for the candidate's precision.
        metric: In place of a tolerance: a function of the model's output that returns a number, higher is better. A
            candidate passes if its mean over the checked calls is at most `max_drop` below the baseline's.
        max_drop: See `metric`.

    Raises:
        InvalidValue: If a value cannot be read or is not positive, or if two values contradict each other.
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
            raise InvalidValue("calls and horizon cannot be combined", where="goal", remedy="give one of the two")
        if self.objective != "time" and (self.calls is not None or self.horizon is not None):
            name = "calls" if self.calls is not None else "horizon"
            raise InvalidValue(
                f"the objective {self.objective} ignores start-up, so there is nothing to amortize over calls",
                where=name,
                remedy=f"drop {name}, or use the objective time",
            )
        _ = self.horizon_s
        if type(self.processes) is not int or self.processes < 1:
            raise InvalidValue(
                f"{self.processes} is not a number of processes", where="processes", remedy="give 1 or more"
            )
        if self.processes > 1 and self.deploy == "jit":
            raise InvalidValue(
                "with deploy='jit', every process compiles for itself", where="processes", remedy="drop processes"
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
                "neither the objective nor a limit is a latency",
                where="percentile",
                remedy="give max_latency, or use the objective latency",
            )

    def _check_batch(self) -> None:
        check_batch(self.batch)
        if self.objective == "latency" and self.batch != "fixed":
            raise InvalidValue(
                "the smallest batch always has the lowest latency",
                where="batch",
                remedy="use the objective throughput with max_latency, or the batch fixed",
            )

    def _check_acceptance(self) -> None:
        if self.tolerance is not None and not self.tolerance > 0:
            raise InvalidValue(f"{self.tolerance} is not positive", where="tolerance", remedy="give one like 1e-3")
        if not self.max_drop >= 0:
            raise InvalidValue(f"{self.max_drop} is negative", where="max_drop", remedy="give 0 or more")
        if self.max_drop and self.metric is None:
            raise InvalidValue("max_drop needs a metric", where="max_drop", remedy="give metric= too")
        if self.metric is not None and self.tolerance is not None:
            raise InvalidValue("metric and tolerance cannot be combined", where="goal", remedy="give one of the two")
        if self.metric is not None and not callable(self.metric):
            raise InvalidValue(f"a {type(self.metric).__name__} is not callable", where="metric")

    def for_training(self, batch: str | Sequence[int] = "fixed") -> Goal:
        """Return the goal for training steps, which are not packed: every process compiles for itself (`jit`).

        `batch`: the batch sizes that the training allows. Raises InvalidValue for a value that has no meaning for a
        training step.
        """
        if self.metric is not None:
            raise InvalidValue("needs a model's outputs, and a training step has none", where="metric")
        said: Any = batch if isinstance(batch, str) else tuple(dict.fromkeys(batch))
        if self.batch != "fixed" and said not in (self.batch, self.batch_sizes):
            remedy = "set it in the training, as in Training(batch='tune'), or use the batch fixed"
            raise InvalidValue("changes what the model learns", where="batch", remedy=remedy)
        if self.processes > 1:
            raise InvalidValue("in training, every process compiles for itself", where="processes", remedy="drop it")
        return replace(self, deploy="jit", batch=said)

    def for_script(self, seen: ScriptEntry) -> Goal:
        """Return the goal for as many calls as the script makes, if that is known and the user set no other number."""
        is_open = self.calls is None and self.horizon is None and self.objective == "time"
        return replace(self, calls=seen.calls) if seen.whole and is_open else self

    def for_prompts(self, seen: GenerationEntry) -> Goal:
        """Return the goal for the prompts of these texts. A limit on the latency of decode steps does not apply."""
        calls = None if self.calls is None else max(1, round(self.calls * seen.texts / seen.new_tokens))
        ratio = float(f"{seen.prefill_share / (1 - seen.prefill_share):.0e}")  # rounded, so that runs share a study
        horizon = self.horizon_s * ratio if calls is None and self.objective == "time" else None
        percentile = self.percentile if self.objective == "latency" else None
        return replace(self, calls=calls, horizon=horizon, max_latency=None, percentile=percentile, batch="fixed")

    @property
    def loads_artifacts(self) -> bool:
        """Whether production starts from the packed artifact."""
        return self.deploy == "artifact"

    @property
    def horizon_s(self) -> float:
        """The horizon in seconds."""
        return parse_duration(_DEFAULT_HORIZON if self.horizon is None else self.horizon, where="horizon")

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The batch sizes that the user listed, in order; empty for "fixed" and "tune"."""
        return () if isinstance(self.batch, str) else tuple(dict.fromkeys(self.batch))

    def calls_for(self, baseline_s: float) -> float:
        """Return how many calls a process makes, given the seconds of one baseline call."""
        return float(self.calls) if self.calls is not None else max(1.0, self.horizon_s / baseline_s)

    def check_horizon(self, baseline_s: float) -> None:
        """Raise InvalidValue if the horizon is shorter than one call."""
        if self.calls is None and self.horizon_s < baseline_s:
            raise InvalidValue(
                f"{self.horizon_s:g} s is shorter than one call, which takes {baseline_s:.3g} s",
                where="horizon",
                remedy="give a longer one, or calls",
            )

    @property
    def calls_to_time(self) -> int:
        """How many calls must be timed, so that enough of them lie beyond the percentile."""
        return 0 if self.percentile is None else int(_BEYOND / (1 - self.percentile / 100))

    @property
    def is_of_single_calls(self) -> bool:
        """Whether the goal needs the latency of single calls, and not only a throughput."""
        return self.objective != "throughput" or self.max_latency is not None

    def spread_over(self, calls: float) -> float:
        """Return over how many calls start-up is spread when candidates are ranked; infinity if it is ignored."""
        return calls if self.objective == "time" else math.inf

    def tolerance_for(self, precision: str) -> Tolerance:
        """Return the limits for a candidate of this precision ("" is the model's own)."""
        return published_tolerance(precision) if self.tolerance is None else exactly(self.tolerance)

    @property
    def acceptance_digest(self) -> str:
        """Eight hexadecimal digits, equal for goals that accept the same outputs."""
        code = getattr(self.metric, "__code__", None)
        parts = (self.tolerance, self.max_drop, code.co_code.hex() if code else repr(self.metric))
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:8]

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits, equal for goals that rank candidates alike, so that they can share a study."""
        ranked_by = (
            self.objective, self.deploy, self.processes, self.calls, self.horizon_s, self.percentile,
            self.max_latency, self.max_startup, self.max_memory, self.batch,
        )  # fmt: skip
        return hashlib.sha256(repr(ranked_by).encode()).hexdigest()[:8]

    def entry(self) -> GoalEntry:
        """Return the goal as it is stored in the document."""
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
    """Raise InvalidValue if `batch` is neither "fixed", nor "tune", nor a sequence of sizes."""
    if isinstance(batch, str):
        if batch not in ("fixed", "tune"):
            raise InvalidValue(f"{batch!r} is unknown", where="batch", remedy="give fixed, tune, or sizes")
        return
    if not isinstance(batch, Sequence) or not all(type(n) is int and n > 0 for n in batch):
        raise InvalidValue(f"{batch!r} is not a list of sizes", where="batch", remedy="give some like [1, 8, 32]")
    if not batch:
        raise InvalidValue("is empty", where="batch", remedy="give some like [1, 8, 32]")


def batch_from(text: str) -> Batch:
    """Parse the option `--batch`: `fixed`, `tune`, or sizes like `1,8,32`. Raises InvalidValue."""
    if text in ("fixed", "tune"):
        return text  # type: ignore[return-value]
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as fault:
        raise InvalidValue(f"cannot read {text!r}", where="batch", remedy="give fixed, tune, or 1,8,32") from fault


def _seconds(limit: Limit | None, where: str, *, scale: float = 1.0) -> float | None:
    return None if limit is None else parse_limit(limit, where=where) * scale


class GoalEntry(Record, frozen=True):
    """A goal as data, parsed and with its defaults; see `Goal`. Values that were not set are null."""

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
