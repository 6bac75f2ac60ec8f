"""The profile of a workload: what is known about it before the search."""

from __future__ import annotations

from autocompile.core.bound import Bound
from autocompile.core.buckets import Buckets
from autocompile.core.estimate import Estimate
from autocompile.core.outcome import Contamination
from autocompile.core.pipeline import InputPipeline, Loaders, LoaderSetting, LoaderTiming
from autocompile.core.serde import Record
from autocompile.core.step_profile import StepProfile


class GraphBreak(Record, frozen=True):
    """A graph break: its place in the user's own file, the reason, and what to write instead, if that is known.

    `path` is the submodule whose `forward` contains it: "" for the model itself, or if unknown.
    """

    file: str
    line: int
    reason: str
    advice: str = ""
    path: str = ""


class Recompile(Record, frozen=True):
    """A function that is compiled again for another sample: what differed, and what to do about it."""

    file: str
    line: int
    reason: str
    advice: str = ""


class RepeatedBlock(Record, frozen=True):
    """Submodules of the same class and structure, of which only one has to be compiled.

    `paths` are their paths, as `nn.Module.get_submodule` takes them.
    """

    class_name: str
    paths: tuple[str, ...]


class Submodule(Record, frozen=True):
    """The time of one submodule in a call, without its children (`self_ms`, `share`) and with them (`whole_share`).

    Shares are of the call's time, in 0..1. `allocated_bytes` is what its own operators allocate, and `parameter_bytes`
    is the size of its own parameters. The model itself has the path "".
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
    """The best performance that was measured on this device, with the process's threads.

    `flops_per_s`: in a large matrix product of `dtype`. `bytes_per_s`: read and written in a large copy. `dispatch_us`:
    the time of an operator on one element, which is all overhead. `convolution_flops_per_s`: the same matrix product in
    TF32, if convolutions use TF32 and matrix products do not, which is torch's default on a GPU; else 0.
    """

    flops_per_s: float
    bytes_per_s: float
    dispatch_us: float
    dtype: str
    convolution_flops_per_s: float = 0.0


class Profile(Record, tag="profile", frozen=True):
    """The profile of a workload, measured in eager before the search.

    Attributes:
        baseline_ms: The latency of one call, with the spread of repeated blocks of calls.
        self_ratio: The baseline timed against itself, which shows the noise of this host.
        busy_share: The busy share of the device, in 0..1; null if unknown.
        busy_source: How `busy_share` was measured.
        outside_kernels_share: The share of a call's wall time in which no kernel runs.
        matrix_kernels: Matrix products and convolutions per call, which mixed precision and GEMM templates speed up.
        peak_memory_bytes: For training, the memory of a step itself; for calls, that of the process.
        deterministic: Whether two calls from the same random state agree exactly.
        random: Whether they are deterministic, but calls from different random states differ.
        error_floor: The baseline's root mean square error against the reference, relative to the reference.
        reference: The precision of the reference; "" in a profile for reading.
        phases_s: The time of the child process, in seconds by phase.
        bound: What limits the workload.
        evidence: Why, in one sentence.
        flops: Floating point operations per call, of matrix products, convolutions and attention.
        bytes: Bytes per call, of the operands and results of all operators.
        achieved_flops_share: The achieved rate, as a share of the `ceilings`.
        achieved_bandwidth_share: The achieved rate, as a share of the `ceilings`. It may exceed 1 if data stay in
            caches, which are faster than a copy.
        overhead_share: The share of a call that is spent starting operators.
        submodules: The time of each submodule; for a training step, in the forward pass only.
        exportable: Whether torch.export succeeds; null if that was not tried.
        input_share: The share of a step that waits for the batch.
        better_loader: The loader setting that measured better.
        buckets: The sizes to which calls of varying sizes may be padded. Null if padding changes outputs or was not
            tried; see `padding_problem`.
        contamination: What other processes did while the baseline was timed.
        opaque_input: What the arguments contain that no compiled program can take, or "".
        opaque_output: What the output contains that no compiled program can return, or "".
        free_batch: Whether the samples of a call are independent, so that their number may be changed; null if that was
            not tried.
        unrepeatable: Whether two calls from the same random state differ by more than rounding errors.
        step: The profile of a training step; null for calls.
        loaders: The time of a training step with each setting of its DataLoader; null if batches take no share of it.
        micro_batches: For training, by the number of equal parts of a batch: why the model learns something else from
            the parts; "" if it is proved that it does not. Empty if that was not tried.
        recompute_problem: Why the activations of the repeated blocks cannot be recomputed, or "".
        attention_share: On a CPU, the share of a call's time in torch's fused kernels for attention, in 0..1.
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
    opaque_input: str = ""
    opaque_output: str = ""
    free_batch: bool | None = None
    unrepeatable: bool = False
    step: StepProfile | None = None
    loaders: Loaders | None = None
    micro_batches: dict[str, str] = {}
    recompute_problem: str = ""
    attention_share: float = 0.0

    @property
    def unpackable(self) -> str:
        """Why no program of the model can be packed, and what to do about it; "" if nothing is known to prevent it."""
        found = self.opaque_input or self.opaque_output
        if not found:
            return ""
        is_cache = "cache" in found.lower()
        if self.opaque_input:
            does, remedy = "take", "pass tensors in a tuple, a list or a dict"
            remedy = "tune a script that generates text instead: autocompile tune script.py" if is_cache else remedy
        else:
            does, remedy = "return", "return tensors in a tuple, a list or a dict"
            remedy = "call it with use_cache=False" if is_cache else remedy
        return f"{found}, which a compiled program cannot {does}, so production would compile at start-up; {remedy}"

    @property
    def better_setting(self) -> LoaderSetting | None:
        """The DataLoader setting with which a training step was clearly shorter; None if there is none."""
        better = self.loaders.better if self.loaders else None
        return better.setting if better else None

    @property
    def busy(self) -> float | None:
        """The smaller of the device's busy share and the share of a call that kernels cover; None if unknown.

        NVML counts periods in which any kernel ran at all, so it reports a GPU with many short kernels as nearly always
        busy. If the profiler has no access to the GPU, it sees no kernels.
        """
        known = [self.busy_share] if self.busy_share is not None else []
        if self.kernels_per_call:
            known.append(1 - self.outside_kernels_share)
        return min(known, default=None)
