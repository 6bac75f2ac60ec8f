"""The one document that a run ends in: what `--json` prints, what `recommendation.json` holds.

Its JSON Schema is `autocompile/document.schema.json`, printed by `autocompile schema`. Fields are only
ever added within one `schema_version`.
"""

from __future__ import annotations

from typing import Literal

from autocompile.core.candidate import Value
from autocompile.core.decision import Decision
from autocompile.core.envelope import Segment
from autocompile.core.environment import Environment, GpuKind
from autocompile.core.estimate import Estimate
from autocompile.core.goal import GoalEntry
from autocompile.core.manifest import Absence
from autocompile.core.outcome import Contamination, Counters, Failure, Generated, Latency, Learned
from autocompile.core.plan import Plan
from autocompile.core.profile import Profile
from autocompile.core.serde import Record
from autocompile.core.serving import Serving, Start
from autocompile.core.words import WorkloadKind
from autocompile.core.workload import GenerationEntry, ScriptEntry, Signature, TrainingEntry

SCHEMA_VERSION = 5

VerdictWord = Literal[
    "winner",
    "nearest",
    "baseline",
    "faster",
    "slower",
    "not distinguishable",
    "not judged",
    "beyond a limit",
    "wrong result",
    "failed",
]


class TrialEntry(Record, frozen=True):
    """One candidate in the table. What was not measured is null.

    `config`: value by dimension; `changes` counts those that are not the default. `is_finalist` tells whether it was
    measured again after the screening. `batch`: samples in a call, null for as many as were given;
    `samples_per_s` where the batch axis is proved, which the goal has to ask for.
    `latency_ms`: p50 of single calls, the median over its processes; `latency` has the last process's
    quantiles and mean. `speedup`: baseline time over this one's, paired, for a sample, with its 95% interval;
    `paired_ms`: milliseconds for the samples of one of the baseline's calls, from that. `amortized_ms`: the
    same over the goal's calls, start-up included. `compile_s`: compiling what is loaded, or else the first pass over
    all signatures, compiling included; `startup_s`: what a process takes to start, as the goal's `deploy` has it start;
    `packing_s`: its share of compiling what all processes load. `excess`: by
    constraint, how far it is beyond it, relative to the limit (0 or less keeps it). `error`: root mean square
    error against the reference, relative to it; `error_limit`: what it may be. `verdict` is against the
    baseline, by what the goal ranks by; the first by rank is the `winner`, or, where nothing keeps the goal's
    constraints, the `nearest`. `not judged`: others used the host while it, or the baseline, was timed. `learned`: how
    a finalist that trains learned beside eager; `generated`: how whole texts were generated with its decode step.
    """

    rank: int | None
    number: int
    label: str
    config: dict[str, Value]
    plan: Plan
    origin: str
    status: Literal["measured", "failed"]
    verdict: VerdictWord
    changes: int
    is_finalist: bool = False
    batch: int | None = None
    samples_per_s: float | None = None
    latency_ms: float | None = None
    latency: Latency | None = None
    speedup: Estimate | None = None
    paired_ms: Estimate | None = None
    amortized_ms: float | None = None
    compile_s: float | None = None
    startup_s: float | None = None
    packing_s: float | None = None
    excess: dict[str, float] = {}
    error: float | None = None
    error_limit: float | None = None
    peak_memory_bytes: int | None = None
    processes: int = 0
    counters: Counters | None = None
    contamination: Contamination | None = None
    noisy: bool = False
    failure: Failure | None = None
    learned: Learned | None = None
    generated: Generated | None = None


class WorkloadEntry(Record, frozen=True):
    """What was tuned: calls of a model, or of `kind` `training` steps that train it, and how these are made.

    Wherever the document speaks of calls, it is about steps then. Of kind `closure` these are calls of the closure that
    an optimizer is given, which compute the loss and its gradients, and update nothing. `script`: what was seen of it
    in a script that does not define it as a workload, else null. `generation`: how it generates text, where calls are
    decode steps. `gpus`: those that its tensors lie on, the one of `device` first.
    """

    name: str
    kind: WorkloadKind
    device: str
    fingerprint: str
    model_fingerprint: str
    is_module: bool
    parameter_count: int
    parameter_bytes: int
    signatures: tuple[Signature, ...]
    training: TrainingEntry | None = None
    script: ScriptEntry | None = None
    generation: GenerationEntry | None = None
    gpus: tuple[GpuKind, ...] = ()


class TradeOff(Record, frozen=True):
    """The winner, or a Pareto point: nothing that was measured is as good in all three and better in one.

    `latency_ms` is for the samples of one of the baseline's calls. `is_feasible`: whether it keeps the goal's
    constraints; what does not keep them hides nothing that does.
    """

    label: str
    startup_s: float
    latency_ms: float
    peak_memory_bytes: int
    is_feasible: bool = True


class ArtifactEntry(Record, frozen=True):
    """What `autocompile.load` serves: the winner, whose figures are what was measured as loaded.

    `untimed`: why what was packed and verified was not timed as loaded, or "" if it was or nothing was packed; then
    the figures are those of the configuration.

    `runtime` and `start`: see `core.serving`; `absences`: why nothing better. `digest` pins it. `inputs` tells the
    calls that a compiled program takes, each argument with the range of its sizes; others go to the fallback.
    `standby`: which runtime serves what the programs do not, "" if none does, and `standby_for` what that is: other
    `weights` than they hold, other `sizes` than they take.
    `envelope`: what `load(calls=)` serves for how many calls of the workload that was tuned, of what the artifact can
    serve: what was packed needs no packing any more.
    """

    runtime: str
    start: Start
    label: str
    digest: str
    size_bytes: int
    absences: tuple[Absence, ...]
    inputs: tuple[str, ...] = ()
    standby: str = ""
    standby_for: tuple[Literal["weights", "sizes"], ...] = ()
    envelope: tuple[Segment, ...] = ()
    untimed: str = ""

    @property
    def serving(self) -> Serving:
        """How it serves."""
        return Serving(self.runtime, self.start)


class WithoutArtifact(Record, frozen=True):
    """The best of what runs without an artifact, which compiles, if it does, in each process.

    `winner` has the start-up that it has then; `envelope` tells for how many calls which of these is best.
    """

    winner: TrialEntry
    envelope: tuple[Segment, ...]


class LaneEntry(Record, frozen=True):
    """One candidate's time on a lane, in a run that has several: `compiling` beside others, or `measuring` alone.

    `lane` 0 is the one that measures. It ran from `began_s` to `ended_s` after the run's begin, of which it was paused
    for `paused_s`, as another was measured; before, it had waited for its turn for `waited_s`. `noisy`: whether it was
    measured while others than this run's own took the host's CPU or GPU; `throttled`: why its GPU was slowed down.
    `machine`: which other machine's lane it is, "" for the one where the run was.
    """

    lane: int
    label: str
    doing: Literal["compiling", "measuring"]
    began_s: float
    ended_s: float
    waited_s: float
    paused_s: float
    noisy: bool = False
    throttled: str = ""
    machine: str = ""


class Document(Record, frozen=True):
    """A recommendation as data.

    `calls`: what was amortized over. `tolerance`: the user's own, or null for the published ones. `is_feasible`:
    whether the winner keeps the goal's constraints; if not, nothing does, and it comes nearest. `envelope`: the winner
    for every number of calls; the segment that holds `calls` is the winner's where the goal's objective is the time,
    and where nothing keeps the constraints there is one, the nearest's. `winner_as_given`: where batch
    sizes were tried, the winner among those that take the samples as given. `margin`: relative difference
    below which, in this run, nothing is called faster; `noise_floor`: what the baseline differed from itself.
    `toolchain_s`: what this machine pays
    once for its compiler, in no candidate's figures. `complete`: false if the run ended early, for the reason in
    `stopped`: the user interrupted it, or what runs the trials broke.
    `time_spent_s`: seconds by purpose, together the whole run. `notices`: what the user should know first, each told
    as soon as it was found. `without_artifact`: null where the goal has production start
    without one anyway. `open_to`: labels of those that had no final, and so leave the verdict open: the winner
    itself, or what reads as good or better in every column. `lanes`: what the search did on each, in the order in which
    it ended; empty for a run with one.
    """

    schema_version: int
    workload: WorkloadEntry
    goal: GoalEntry
    calls: float
    tolerance: float | None
    strategy: str
    strategy_digest: str
    seed: int
    budget_s: float
    complete: bool
    is_feasible: bool
    baseline: TrialEntry
    winner: TrialEntry
    winner_as_given: TrialEntry | None
    artifact: ArtifactEntry
    reason: str
    snippet: str
    margin: float
    noise_floor: float
    envelope: tuple[Segment, ...]
    trade_offs: tuple[TradeOff, ...]
    trials: tuple[TrialEntry, ...]
    profile: Profile
    decisions: tuple[Decision, ...]
    environment: Environment
    toolchain_s: float
    time_spent_s: dict[str, float]
    created: str
    notices: tuple[str, ...] = ()
    open_to: tuple[str, ...] = ()
    stopped: str = ""
    without_artifact: WithoutArtifact | None = None
    lanes: tuple[LaneEntry, ...] = ()
