"""What is known of a workload before anything is searched."""

from __future__ import annotations

from autocompile.core.estimate import Estimate
from autocompile.core.serde import Record


class GraphBreak(Record, frozen=True):
    """Where the compiler leaves the graph, in the user's own file."""

    file: str
    line: int
    reason: str


class RepeatedBlock(Record, frozen=True):
    """Children of one class and one structure that recur: compiling one serves all.

    `paths` are the submodule paths, as `nn.Module.get_submodule` takes them.
    """

    class_name: str
    paths: tuple[str, ...]


class Profile(Record, tag="profile", frozen=True):
    """Measured in eager, before the search.

    `baseline_ms`: latency of one call, and the spread of repeated blocks of calls. `self_ratio`: the baseline
    timed against itself, which shows what this host makes of no difference at all. `busy_share`: of
    the device, in 0..1, and `busy_source` tells how it was measured. `outside_kernels_share`: of the
    wall time of a call, what no kernel accounts for. `error_floor`: the baseline's own root mean
    square error against the reference, relative to the reference's. `matrix_kernels`: matrix products
    and convolutions a call, which mixed precision and GEMM templates are about. `phases_s`: seconds by
    phase.
    """

    baseline_ms: Estimate
    self_ratio: Estimate
    busy_share: float
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
