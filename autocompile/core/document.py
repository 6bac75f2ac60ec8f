"""The one document that a run ends in: what `--json` prints, what `recommendation.json` holds.

Its JSON Schema is `autocompile/document.schema.json`, printed by `autocompile schema`. Fields are only
ever added within one `schema_version`.
"""

from __future__ import annotations

from typing import Literal

from autocompile.core.candidate import Value
from autocompile.core.decision import Decision
from autocompile.core.envelope import Segment
from autocompile.core.environment import Environment
from autocompile.core.estimate import Estimate
from autocompile.core.manifest import Absence, Tier
from autocompile.core.outcome import Contamination, Counters, Failure, Latency
from autocompile.core.plan import Plan
from autocompile.core.profile import Profile
from autocompile.core.serde import Record
from autocompile.core.workload import Signature

SCHEMA_VERSION = 2

Verdict = Literal["winner", "baseline", "faster", "slower", "not distinguishable", "wrong result", "failed"]


class TrialEntry(Record, frozen=True):
    """One candidate in the table. What was not measured is null.

    `config`: value by dimension. `latency_ms`: p50 of single calls, the median over its processes;
    `latency` has the last process's quantiles and mean. `speedup`: baseline time over this one's,
    paired, with its 95% interval. `compile_s`: the first pass over all signatures, compiling included;
    `startup_s`: all that a cold process pays once. `error`: root mean square error against the
    reference, relative to it; `error_limit`: what it may be. `amortized_ms`: milliseconds a call over
    the goal's calls, start-up included. `verdict` is against the baseline, by `amortized_ms`.
    """

    rank: int | None
    number: int
    label: str
    config: dict[str, Value]
    plan: Plan
    origin: str
    status: Literal["measured", "failed"]
    verdict: Verdict
    latency_ms: float | None = None
    latency: Latency | None = None
    speedup: Estimate | None = None
    amortized_ms: float | None = None
    compile_s: float | None = None
    startup_s: float | None = None
    error: float | None = None
    error_limit: float | None = None
    peak_memory_bytes: int | None = None
    processes: int = 0
    counters: Counters | None = None
    contamination: Contamination | None = None
    failure: Failure | None = None


class WorkloadEntry(Record, frozen=True):
    """What was tuned."""

    name: str
    kind: str
    device: str
    fingerprint: str
    model_fingerprint: str
    is_module: bool
    parameter_count: int
    parameter_bytes: int
    signatures: tuple[Signature, ...]


class ArtifactEntry(Record, frozen=True):
    """What `autocompile.load` serves, measured as loaded in fresh processes; what was not measured is null.

    `tier`: see `core.manifest`; `absences`: why no better one. `digest` pins it. `inputs` tells the calls that
    a compiled program takes, each argument with the range of its sizes; others go to the fallback.
    `startup_s`: loading and the first calls, beyond what steady calls take. `envelope`: where start-up is
    the artifact's, which is best for how many calls.
    """

    tier: Tier
    label: str
    digest: str
    size_bytes: int
    absences: tuple[Absence, ...]
    inputs: tuple[str, ...] = ()
    startup_s: float | None = None
    latency_ms: float | None = None
    speedup: Estimate | None = None
    error: float | None = None
    error_limit: float | None = None
    processes: int = 0
    envelope: tuple[Segment, ...] = ()


class Document(Record, frozen=True):
    """A recommendation as data.

    `calls`: what was amortized over. `tolerance`: the user's own, or null for the published ones. `margin`: relative
    difference below which, in this run, nothing is called faster. `toolchain_s`: what this machine pays
    once for its compiler, in no candidate's figures. `complete`: false if the run was stopped by hand.
    `time_spent_s`: seconds by purpose, together the whole run.
    """

    schema_version: int
    workload: WorkloadEntry
    calls: float
    tolerance: float | None
    strategy: str
    strategy_digest: str
    seed: int
    budget_s: float
    complete: bool
    baseline: TrialEntry
    winner: TrialEntry
    artifact: ArtifactEntry
    reason: str
    snippet: str
    margin: float
    envelope: tuple[Segment, ...]
    trials: tuple[TrialEntry, ...]
    profile: Profile
    decisions: tuple[Decision, ...]
    environment: Environment
    toolchain_s: float
    time_spent_s: dict[str, float]
    created: str
