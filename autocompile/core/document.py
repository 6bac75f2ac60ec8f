"""The document that a run produces: the output of `--json`, and the content of `recommendation.json`.

Its JSON Schema is `autocompile/document.schema.json`, printed by `autocompile schema`. Within one `schema_version`,
fields are only added.
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
    """One candidate in the table. Values that were not measured are null.

    Attributes:
        config: The value of each dimension.
        verdict: The comparison with the baseline, by the goal's objective. The first by rank is the `winner`, or the
            `nearest` if no candidate meets the constraints. `not judged`: other processes used the host while the
            candidate was timed.
        changes: How many dimensions do not have their default value.
        is_finalist: Whether it was measured again after the screening.
        batch: Samples per call; null means as many as were given.
        samples_per_s: Throughput; only if the goal asks for it, and the batch axis was proved.
        latency_ms: The 50th percentile of single calls, the median over the candidate's processes.
        latency: Quantiles and mean in the last process.
        speedup: The baseline's time per sample divided by the candidate's, from paired timings, with its 95% interval.
        speedup_of_one_process: The same, with the interval in which 95% of single processes lie. It is wider than that
            of `speedup`, which is for the mean over processes: each process has a bias of its own.
        paired_ms: Milliseconds for the samples of one of the baseline's calls, derived from `speedup`.
        amortized_ms: The same, amortized over the goal's calls, start-up included.
        compile_s: The time to compile the packed program; without one, the first pass over all signatures.
        startup_s: The time that a process takes to start, in the way of the goal's `deploy`.
        packing_s: Its share of the time to compile what all processes load.
        excess: By constraint, how far the candidate exceeds the limit, relative to the limit; 0 or less meets it.
        error: Root mean square error against the reference, relative to the reference.
        error_limit: The limit for `error`.
        learned: How a finalist learned in comparison with eager, if training was tuned.
        generated: How whole texts were generated with its decode step, if generation was tuned.
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
    speedup_of_one_process: Estimate | None = None
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
    """What was tuned: calls of a model, or training steps.

    Attributes:
        kind: The unit of work, which the document refers to as a call. `inference`: a call of the model. `training`: a
            training step. `closure`: a call of the closure that the optimizer is given, which computes the loss and its
            gradients and updates nothing. `generation`: a decode step. `prompt`: the call for a prompt.
        training: How the model is trained, else null.
        script: What was seen of the model in a watched script; null if the script defines a workload.
        generation: How the model generates text, if decode steps or prompts were tuned.
        gpus: The GPUs of its tensors; the GPU of `device` comes first.
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
    """The winner, or a Pareto point: no other candidate is as good in all three values and better in one.

    `latency_ms` is for the samples of one of the baseline's calls. `is_feasible`: whether it meets the goal's
    constraints. A candidate that does not meet them cannot remove a feasible one from the Pareto points.
    """

    label: str
    startup_s: float
    latency_ms: float
    peak_memory_bytes: int
    is_feasible: bool = True


class ArtifactEntry(Record, frozen=True):
    """What `autocompile.load` serves: the winner, measured after loading it.

    Attributes:
        runtime: See `core.serving`.
        start: See `core.serving`.
        digest: Identifies the artifact; see `autocompile.load`.
        absences: Which better ways to start are not available, and why.
        inputs: The calls that the compiled program takes: each argument with the range of its sizes. Other calls go to
            the fallback.
        standby: The runtime of a second program, which serves what the packed programs cannot; "" if there is none.
        standby_for: What the second program serves: other `weights` than the packed ones, other `sizes`.
        envelope: What `load(calls=)` serves for which number of calls. The cost of packing is not included any more.
        untimed: Why the packed and verified artifact was not timed after loading; the figures are then those of the
            configuration. "" if it was timed, or if nothing was packed.
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
        """The runtime, and how it starts."""
        return Serving(self.runtime, self.start)


class WithoutArtifact(Record, frozen=True):
    """The best candidate without an artifact, which then compiles in each process.

    `winner` has the start-up time for that case; `envelope` has the best candidate for each number of calls.
    """

    winner: TrialEntry
    envelope: tuple[Segment, ...]


class LaneEntry(Record, frozen=True):
    """A candidate's time on a lane, in a run with several: `compiling` in parallel, or `measuring` alone.

    Attributes:
        lane: The number of the lane; lane 0 measures.
        began_s: The start, in seconds after the run began.
        ended_s: The end, in seconds after the run began.
        waited_s: How long the candidate waited for its turn before.
        paused_s: How long it was paused in between, while another candidate was measured.
        noisy: Whether processes that are not part of this run used the CPU or GPU while it was measured.
        throttled: Why the GPU was slowed down, or "".
        machine: The machine of the lane; "" for the one where the run was started.
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


class PromptsEntry(Record, frozen=True):
    """The result for the prompts of a model that generates.

    Attributes:
        directory: The name of the directory of the recommendation for prompts; "" if there is none.
        label: The configuration that won.
        speedup: Eager's time for a prompt divided by that of this configuration, with its 95% interval.
        latency_ms: The median time of a call for a prompt.
        baseline_ms: The same for eager.
        generated: How whole texts were generated with decode steps and prompts as recommended.
        left: Why the model itself computes the prompts, or "".
    """

    label: str = ""
    speedup: Estimate | None = None
    latency_ms: float | None = None
    baseline_ms: float | None = None
    generated: Generated | None = None
    left: str = ""
    directory: str = ""


class Document(Record, frozen=True):
    """A recommendation as data.

    Attributes:
        calls: The number of calls over which start-up is amortized.
        tolerance: The user's tolerance; null means the published limits.
        complete: False if the run ended early, for the reason in `stopped`.
        is_feasible: Whether the winner meets the goal's constraints. If not, no candidate does, and the winner is the
            one that comes nearest.
        winner_as_given: If batch sizes were tried, the winner among the candidates that take the samples as given.
        margin: The relative difference below which this run calls no candidate faster.
        noise_floor: How far the baseline differed from itself.
        envelope: The best candidate for every number of calls. If the objective is the time, the segment that contains
            `calls` is the winner's. If no candidate meets the constraints, the only segment is the nearest candidate's.
        trade_offs: The winner, and the Pareto points of start-up, latency and memory.
        toolchain_s: The one-off cost of the compiler on this machine, which is part of no candidate's figures.
        time_spent_s: Seconds by purpose. Their sum is the duration of the run.
        notices: What the user should know first. Each was shown as soon as it was known.
        open_to: Labels of candidates that had no final, and therefore leave the verdict open: the winner itself, or
            candidates that are at least as good in every column.
        stopped: Why the run ended early: the user interrupted it, or the process that runs the trials failed.
        without_artifact: The best candidate without an artifact; null if the goal's production uses none anyway.
        lanes: What the search did on each lane, in the order in which it ended; empty for a run with one lane.
        prompts: The result for prompts, if they were tuned after the decode steps.
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
    prompts: PromptsEntry | None = None
