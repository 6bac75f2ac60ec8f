"""How a trial ended: a measurement, or a failure that is a value."""

from __future__ import annotations

from typing import Literal

from autocompile.core.estimate import Estimate
from autocompile.core.serde import Record
from autocompile.core.words import Words, words_of

FailureKind = Literal[
    "error", "invalid", "timeout", "out_of_memory", "crash", "wrong_result", "unsupported", "recompiled"
]

# A cause that lies in the model, so that other candidates have it as well, in a word of the runtime that found it; ""
# where none is known. See `runtime.kind.Kind.fails_alike`.
FailureCause = str


class Failure(Record, tag="failure", frozen=True):
    """Why there is no measurement: in which `stage`, of which `kind`, and what was said.

    `log_tail` is the end of what the child printed; `phases_s` tells where its seconds went. `cause` is what in the
    model brought it about, "" where that is not known.
    """

    stage: str
    kind: FailureKind
    message: str
    log_tail: str = ""
    phases_s: dict[str, float] = {}
    cause: FailureCause = ""


class Latency(Record, frozen=True):
    """Milliseconds a call: quantiles of single calls, and `mean_ms`, and how many calls were timed.

    `mean_ms` is over all samples, each as often as it comes: the median over blocks of a block's mean.
    """

    mean_ms: float
    p50_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    calls: int


class Startup(Record, frozen=True):
    """Seconds before the first steady call, beyond what those calls take anyway.

    `import_s`: torch's compiler packages. `build_s`: copying and transforming the model, or loading what was packed.
    `compile_s`: the first pass over all signatures, where compiling happens. `warmup_s`: the passes until it is
    steady. `pack_s`: compiling what is loaded, once for all processes that load it, which is no part of a start.
    One-off costs per machine (instruction-set probes, precompiled headers) are not in it: see `Toolchain`.
    """

    import_s: float
    build_s: float
    compile_s: float
    warmup_s: float
    pack_s: float = 0.0

    @property
    def total_s(self) -> float:
        """What a process pays once."""
        return self.import_s + self.build_s + self.compile_s + self.warmup_s


class Accuracy(Record, frozen=True):
    """The worst output's error against the reference, relative to the reference's root mean square.

    With a metric of the user's own, `error` is how far it dropped and `limit` how far it may.
    `error`, `baseline_error` and `limit` are root mean squares; `element_error` is the largest share
    of its own bound that any one element used (1 is the bound). `output` names the worst output.
    """

    error: float
    baseline_error: float
    limit: float
    element_error: float
    output: str
    reference: str


class Learned(Record, frozen=True):
    """How a candidate learned beside eager, from the same beginning, in so many `steps` over the batches in turn.

    `first` and `last`: its mean loss over the first and the last quarter of the steps; `baseline_last`: eager's over
    the last. `off`: root mean square difference of the two losses over the last quarter, with the same random numbers;
    `limit`: what it may be. `seeds`: over how many seeds the means are, where the candidate draws random numbers of its
    own. `skipped`: why it was not trained, or "". `by_closure`: the optimizer called for the loss itself, and `steps`
    counts these calls.
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
        """What `steps` are called."""
        return words_of("closure" if self.by_closure else "training")


class Generated(Record, frozen=True):
    """How `generate` fared with a candidate's decode step: `tokens` were compared with eager's, and are the same.

    `speedup`: eager's time for a whole call of `generate`, prompt included, over the candidate's, the median of pairs;
    and how many tokens a second both generated. `skipped`: why none of this was done, or "".
    """

    tokens: int = 0
    speedup: Estimate | None = None
    baseline_tokens_per_s: float = 0.0
    tokens_per_s: float = 0.0
    skipped: str = ""


class Counters(Record, frozen=True):
    """What the compiler counted; `unseen`: calls of sizes that no sample has, and for how many it compiles again.

    `captures`: functions that CUDA graphs were made of, one for each size that calls have; `unseen_captures`: for how
    many of the unseen calls it captured another, which compiles nothing.
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
    """What else the host did while blocks were timed.

    `dropped` of `blocks` were disturbed and repeated; `other_cpu_share` and `steal_share` are shares
    of the host's CPU time taken by others over all of the timing; `noisy` says that it stayed so. On a
    GPU, `throttled` names why its clocks were lowered, and `gpu_processes` counts others that computed on it.
    `waited_share`: on a GPU, for which share of the time threads of the trial were ready to run and had no CPU, which
    decides there, and not what others took of the CPUs; null on a CPU, and where the system does not tell.
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
    """One candidate against the baseline in one process.

    `ratio` is candidate time over baseline time for a sample, the median of paired blocks, with its interval;
    `batch_factor`: samples in one of the candidate's calls, over those in one of the baseline's;
    `decided`: timing ended early, as the candidate was surely behind the best. `peak_memory_bytes`: of a step of
    training what is its own (parameters, gradients, the optimizer's state, activations, batches); of a call what the
    process took, or on a GPU allocated. `phases_s` tells where the child's seconds went. `learned`: how it learned
    beside eager, null where that was not asked for; `generated`: how whole texts were generated with it, likewise.
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
    """What this machine pays once for its compiler: `cold_s`, and whether it works at all.

    `problem` is "" if it works, else what is wrong. `instruction_set` is what the compiler targets.
    `missing`: why runtimes cannot be used here at all, by their names.
    """

    cold_s: float
    instruction_set: str
    problem: str = ""
    phases_s: dict[str, float] = {}
    missing: dict[str, str] = {}
