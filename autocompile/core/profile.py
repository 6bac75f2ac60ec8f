"""What is known of a workload before anything is searched."""

from __future__ import annotations

from autocompile.core.bound import Bound
from autocompile.core.buckets import Buckets
from autocompile.core.estimate import Estimate
from autocompile.core.outcome import Contamination
from autocompile.core.pipeline import InputPipeline, Loaders, LoaderSetting, LoaderTiming
from autocompile.core.serde import Record
from autocompile.core.step_profile import StepProfile


class GraphBreak(Record, frozen=True):
    """Where the compiler leaves the graph, in the user's own file, why, and what to write instead if that is known.

    `path` is the submodule whose `forward` it lies in: "" for the model itself, and where it is not known.
    """

    file: str
    line: int
    reason: str
    advice: str = ""
    path: str = ""


class Recompile(Record, frozen=True):
    """A function that is compiled again for another sample, what differed, and what to do about it."""

    file: str
    line: int
    reason: str
    advice: str = ""


class RepeatedBlock(Record, frozen=True):
    """Children of one class and one structure that recur: compiling one serves all.

    `paths` are the submodule paths, as `nn.Module.get_submodule` takes them.
    """

    class_name: str
    paths: tuple[str, ...]


class Submodule(Record, frozen=True):
    """What one submodule takes of a call, without what its children take, and with them (`whole_share`).

    Shares are of the call's time, in 0..1; `allocated_bytes` is what its own operators newly allocate;
    `parameter_bytes` are its own parameters. The model itself has the path "".
    """

    path: str
    class_name: str
    calls: int
    self_ms: float
    share: float
    whole_share: float
    allocated_bytes: int
    parameter_bytes: int


class Ceilings(Record, frozen=True):
    """The best that this device was seen to do, with the process's threads.

    `flops_per_s` in a large matrix product of `dtype`, `bytes_per_s` (read and written) in a large copy,
    `dispatch_us` for an operator on one element, which is all overhead. `convolution_flops_per_s`: the same product in
    TF32, where convolutions are computed in that and matrix products are not, as torch has it on a GPU; else 0.
    """

    flops_per_s: float
    bytes_per_s: float
    dispatch_us: float
    dtype: str
    convolution_flops_per_s: float = 0.0


class Profile(Record, tag="profile", frozen=True):
    """Measured in eager, before the search.

    `baseline_ms`: latency of one call, and the spread of repeated blocks of calls. `self_ratio`: the baseline
    timed against itself, which shows what this host makes of no difference at all. `busy_share`: of
    the device, in 0..1, null where nothing tells, and `busy_source` says how it was measured.
    `outside_kernels_share`: of the wall time of a call, what no kernel accounts for. `error_floor`: the baseline's own
    root mean square error against the reference, relative to the reference's; a profile for reading has no `reference`
    (""). `matrix_kernels`: matrix products
    and convolutions a call, which mixed precision and GEMM templates are about. `phases_s`: seconds by
    phase.

    `bound` is what limits it and `evidence` says why in a sentence. `flops` (matrix products, convolutions,
    attention) and `bytes` (operands and results of all operators) are per call; `achieved_flops_share`,
    `achieved_bandwidth_share` are what it makes of the `ceilings`, and `overhead_share` is what starting its
    operators takes of a call. Work that stays in caches may go beyond a copy's rate, so beyond 1. `exportable`
    is None where it was not tried. `input_share`: of a step, what waiting for the batch takes;
    `better_loader` is the loader setting that measured better. `buckets` are what calls of varying sizes may be filled
    up to, None with the `padding_problem` if that changes outputs or was not tried. `contamination` is what others did
    while the baseline was timed. `opaque_output` names what the output holds and no compiled program can return, or "".
    `free_batch`: whether a call's samples are independent, so that it may hold another number of them; None where that
    was not tried. `deterministic`: two calls from one random state agree exactly; `random`: if so, two from different
    ones do not; `unrepeatable`: two from one state are further apart than roundings can be. `step`: a step of training
    from within, null for a call; its `submodules` are of the forward alone. `loaders`: what a DataLoader's settings
    make of a step of training, where its batches take a share of it; else null. `micro_batches`: of a training, by the
    number of equal parts that a batch may be cut into, why it learns something else from them, "" where it is proved
    that it does not; empty where that was not tried. `recompute_problem`: why the repeated blocks' activations cannot
    be computed again, or "". The `peak_memory_bytes` of a training are a step's own, those of calls the process's.
    """

    baseline_ms: Estimate
    self_ratio: Estimate
    busy_share: float | None
    busy_source: str
    outside_kernels_share: float
    kernels_per_call: int
    median_kernel_us: float
    matrix_kernels: int
    peak_memory_bytes: int
    graph_count: int
    graph_breaks: tuple[GraphBreak, ...]
    trace_failure: str
    blocks: tuple[RepeatedBlock, ...]
    deterministic: bool
    random: bool
    error_floor: float
    reference: str
    variants: int
    notes: tuple[str, ...] = ()
    phases_s: dict[str, float] = {}
    bound: Bound = "unknown"
    evidence: str = ""
    flops: int = 0
    bytes: int = 0
    achieved_flops_share: float = 0.0
    achieved_bandwidth_share: float = 0.0
    overhead_share: float = 0.0
    ceilings: Ceilings | None = None
    submodules: tuple[Submodule, ...] = ()
    recompiles: tuple[Recompile, ...] = ()
    exportable: bool | None = None
    export_failure: str = ""
    input_share: float = 0.0
    pipeline: InputPipeline | None = None
    better_loader: LoaderTiming | None = None
    buckets: Buckets | None = None
    padding_problem: str = ""
    contamination: Contamination | None = None
    opaque_output: str = ""
    free_batch: bool | None = None
    unrepeatable: bool = False
    step: StepProfile | None = None
    loaders: Loaders | None = None
    micro_batches: dict[str, str] = {}
    recompute_problem: str = ""

    @property
    def better_setting(self) -> LoaderSetting | None:
        """The DataLoader's setting with which a step of training was clearly shorter; None if there is none."""
        better = self.loaders.better if self.loaders else None
        return better.setting if better else None

    @property
    def busy(self) -> float | None:
        """The device's busy share: what its kernels cover of a call, or less where that was measured; None if unknown.

        NVML tells of spans in which any kernel ran at all, which with a GPU that waits for short ones is nearly all.
        Where the profiler may not look into a GPU, it sees no kernels.
        """
        known = [self.busy_share] if self.busy_share is not None else []
        if self.kernels_per_call:
            known.append(1 - self.outside_kernels_share)
        return min(known, default=None)
