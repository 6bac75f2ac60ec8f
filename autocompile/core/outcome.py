"""The outcome of a trial: a measurement, or a failure as a value."""

from __future__ import annotations

from typing import Literal

from autocompile.core.estimate import Estimate
from autocompile.core.serde import Record
from autocompile.core.words import Words, words_of

FailureKind = Literal[
    "error", "invalid", "timeout", "out_of_memory", "crash", "wrong_result", "unsupported", "recompiled"
]

# A cause in the model, which therefore affects other candidates too, by a name of the runtime that found it; "" if
# unknown. See `runtime.kind.Kind.fails_alike` and `search.choose.alike`.
FailureCause = str


class Failure(Record, tag="failure", frozen=True):
    """Why there is no measurement: the `stage`, the `kind` of failure, and the `message`.

    `log_tail` is the end of the child process's output. `phases_s` is the time it spent, in seconds by phase. `cause`
    names the cause in the model, or "" if it is unknown.
    """

    stage: str
    kind: FailureKind
    message: str
    log_tail: str = ""
    phases_s: dict[str, float] = {}
    cause: FailureCause = ""


class Latency(Record, frozen=True):
    """Milliseconds per call: quantiles of single calls, the mean, and how many calls were timed.

    `mean_ms` is the median over blocks of a block's mean. In a block, each sample occurs as often as in the workload.
    """

    mean_ms: float
    p50_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    calls: int


class Startup(Record, frozen=True):
    """Seconds before the first steady call, beyond the time of the calls themselves.

    `import_s`: importing torch's compiler packages. `build_s`: copying and transforming the model, or loading the
    artifact. `compile_s`: the first pass over all signatures, which compiles. `warmup_s`: further passes until the time
    per call is steady. `pack_s`: compiling what is loaded, once for all processes that load it; not part of a start.
    One-off costs per machine (instruction-set probes, precompiled headers) are not included: see `Toolchain`.
    """

    import_s: float
    build_s: float
    compile_s: float
    warmup_s: float
    pack_s: float = 0.0

    @property
    def total_s(self) -> float:
        """The start-up time that each process pays once."""
        return self.import_s + self.build_s + self.compile_s + self.warmup_s


class Accuracy(Record, frozen=True):
    """The error of the worst output against the reference, relative to the reference's root mean square.

    `error`, `baseline_error` and `limit` are root mean squares. With the user's own metric, `error` is how far the
    metric dropped, and `limit` how far it may drop. `element_error` is the largest error of any element, as a share of
    its own limit. `output` names the worst output.
    """

    error: float
    baseline_error: float
    limit: float
    element_error: float
    output: str
    reference: str


class Learned(Record, frozen=True):
    """How a candidate learned in comparison with eager, from the same initial state, on the batches in turn.

    Attributes:
        steps: The number of steps. With `by_closure`, the number of calls of the closure.
        first: Its mean loss over the first quarter of the steps.
        last: Its mean loss over the last quarter of the steps.
        baseline_last: Eager's mean loss over the last quarter of the steps.
        off: Root mean square difference of the two losses over the last quarter, with the same random numbers.
        limit: The limit for `off`.
        seeds: The number of seeds that the means are taken over, if the candidate draws other random numbers.
        skipped: Why it was not trained, or "".
        by_closure: Whether the optimizer called a closure for the loss.
    """

    steps: int = 0
    first: float = 0.0
    last: float = 0.0
    baseline_last: float = 0.0
    off: float = 0.0
    limit: float = 0.0
    seeds: int = 1
    skipped: str = ""
    by_closure: bool = False

    @property
    def words(self) -> Words:
        """What `steps` are called in texts."""
        return words_of("closure" if self.by_closure else "training")


class Generated(Record, frozen=True):
    """How `generate` performed with a candidate's decode step.

    `tokens`: how many tokens were compared with eager's; all were the same. `speedup`: eager's time for a whole call of
    `generate`, prompt included, divided by the candidate's, the median of pairs. `tokens_per_s` and
    `baseline_tokens_per_s`: how many tokens per second the candidate and eager generated. `skipped`: why nothing was
    generated, or "".
    """

    tokens: int = 0
    speedup: Estimate | None = None
    baseline_tokens_per_s: float = 0.0
    tokens_per_s: float = 0.0
    skipped: str = ""


class Counters(Record, frozen=True):
    """The compiler's counters.

    `unseen`: how many calls with sizes that no sample has were made; `unseen_recompiles`: for how many of them it
    compiled again. `captures`: how many functions were captured as CUDA graphs, one for each size of calls;
    `unseen_captures`: for how many of the unseen calls another graph was captured, without compiling.
    """

    graphs: int = 0
    graph_breaks: int = 0
    recompiles: int = 0
    cudagraph_skips: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    unseen: int = 0
    unseen_recompiles: int = 0
    captures: int = 0
    unseen_captures: int = 0


class Contamination(Record, frozen=True):
    """What else happened on the host while blocks were timed.

    Attributes:
        blocks: The number of blocks.
        dropped: How many of them were disturbed, and repeated.
        other_cpu_share: The share of the host's CPU time that other processes took during the timing.
        steal_share: The share of the host's CPU time that the hypervisor took.
        noisy: Whether the host stayed disturbed.
        throttled: Why the clocks of the GPU were lowered, or "".
        gpu_processes: How many other processes computed on the GPU.
        waited_share: On a GPU, the share of time in which threads of the trial were ready to run but had no CPU. It
            determines there whether the host is noisy, in place of `other_cpu_share`. Null on a CPU, or if the system
            does not report it.
    """

    blocks: int
    dropped: int
    other_cpu_share: float
    steal_share: float
    involuntary_switches: int
    noisy: bool
    throttled: str = ""
    gpu_processes: int = 0
    waited_share: float | None = None


class Measurement(Record, tag="measurement", frozen=True):
    """One candidate, measured against the baseline in one process.

    Attributes:
        ratio: Candidate time divided by baseline time per sample: the median of paired blocks, with its interval.
        peak_memory_bytes: For a training step, the step's own memory: parameters, gradients, optimizer state,
            activations and batches. For a call, the memory of the process, or on a GPU, the memory that it allocated.
        decided: Whether timing ended early, because the candidate was surely slower than the best.
        batch_factor: Samples per call of the candidate, divided by samples per call of the baseline.
        phases_s: The time that the child process spent, in seconds by phase.
        learned: How it learned in comparison with eager; null if that was not requested.
        generated: How whole texts were generated with it; null if that was not requested.
    """

    ratio: Estimate
    latency: Latency
    baseline: Latency
    startup: Startup
    accuracy: Accuracy
    counters: Counters
    contamination: Contamination
    peak_memory_bytes: int
    decided: bool = False
    batch_factor: float = 1.0
    phases_s: dict[str, float] = {}
    learned: Learned | None = None
    generated: Generated | None = None


Outcome = Measurement | Failure


class Toolchain(Record, tag="toolchain", frozen=True):
    """The compiler on this machine: its one-off cost (`cold_s`), and whether it works.

    `problem` is "" if it works, else what is wrong. `instruction_set` is the target of the compiler. `missing`: why
    runtimes cannot be used here, by their names.
    """

    cold_s: float
    instruction_set: str
    problem: str = ""
    phases_s: dict[str, float] = {}
    missing: dict[str, str] = {}
