"""The facts that choices depend on, taken from a workload and its profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autocompile.core.buckets import Buckets
from autocompile.core.environment import Environment, GpuKind
from autocompile.core.outcome import Toolchain
from autocompile.core.plan import AxisRange
from autocompile.core.profile import GraphBreak, Profile, RepeatedBlock, Submodule
from autocompile.core.sizes import reach
from autocompile.core.workload import Signature, TorchSettings, TrainingEntry, Workload

# A submodule that takes nearly all of its parent's time stands for the parent; its own parts are considered instead.
_NEARLY_ALL, _WORTH_COMPILING = 0.9, 0.05


@dataclass(frozen=True)
class Surroundings:
    """The facts that choices depend on: device, host and workload.

    `hottest`: the submodules that take most of a call, none inside another, the hottest first. `breaking`: the
    submodules in whose forward the graph breaks. `varying`: axes whose sizes differ between the samples. `buckets`: the
    sizes to which calls may be padded, or None and `padding_problem`. `compiler_problem`: why torch's compiler cannot
    be used here. `draws`: whether the workload draws random numbers. `unverifiable`: why only the eager model itself
    could be verified. `missing`: runtimes that cannot be used here at all, with the reason. `loads_artifacts`: whether
    production loads a packed artifact. `free_batch`: whether a call may have another number of samples, None if that is
    not known. `unpackable`: why no program of the model can be packed, or "". `training`: how the model is trained,
    None if it is only called.

    For a training, `micro_batches` maps the number of equal parts to why a batch must not be cut into them, "" if it
    may. `recompute_problem` is why blocks cannot be recomputed, or "". `limits_memory`: whether the goal limits memory.
    `in_script`: whether an unmodified script computes the loss. `optimizer_share`: the optimizer's share of a step, in
    0..1, None if that is not known.

    `multiplies_in_tf32`: whether torch is set to compute float32 matrix products on a GPU in TF32. `gpus`: the GPUs
    that are used, if known. `fuses_attention`: whether torch computes attention on a CPU in its fused kernel.
    """

    device_type: str
    cores: int
    is_module: bool
    has_conv: bool
    signature_count: int
    has_recurrence: bool = False
    has_matrix_products: bool = True
    reduced_precision: bool = False
    double_precision: bool = False
    blocks: tuple[RepeatedBlock, ...] = ()
    hottest: tuple[str, ...] = ()
    breaking: tuple[str, ...] = ()
    varying: tuple[AxisRange, ...] = ()
    buckets: Buckets | None = None
    padding_problem: str = ""
    compiler_problem: str = ""
    draws: bool = False
    unverifiable: str = ""
    batches: tuple[int, ...] = ()
    missing: tuple[tuple[str, str], ...] = ()
    loads_artifacts: bool = True
    free_batch: bool | None = None
    unpackable: str = ""
    training: TrainingEntry | None = None
    micro_batches: Mapping[str, str] = field(default_factory=dict)
    recompute_problem: str = ""
    limits_memory: bool = False
    in_script: bool = False
    optimizer_share: float | None = None
    multiplies_in_tf32: bool = False
    gpus: tuple[GpuKind, ...] = ()
    fuses_attention: bool = False

    @property
    def block_paths(self) -> tuple[str, ...]:
        """The paths of all repeated blocks."""
        return tuple(path for block in self.blocks for path in block.paths)

    @property
    def recomputing_is_pointless(self) -> str:
        """Why recomputing activations has no benefit here, or ""."""
        return "" if self.limits_memory else "it saves memory and costs time, and the goal does not limit memory"


def surroundings_of(
    workload: Workload, environment: Environment, profile: Profile, toolchain: Toolchain
) -> Surroundings:
    """Return the facts that the space depends on: those that every run of this workload on this machine finds."""
    problem = toolchain.problem
    if problem and workload.device_type == "cpu" and not environment.compiler:
        problem = "there is no C++ compiler on PATH; install g++ or clang++ and tune again"
    unverifiable = (
        "equal inputs give different outputs each time, even from the same state of torch's random numbers, so outputs "
        "cannot be compared; draw random numbers with torch's own generator, or pass them as inputs"
    )
    return Surroundings(
        device_type=workload.device_type,
        cores=environment.cores,
        is_module=workload.is_module,
        has_conv=workload.has_conv,
        has_recurrence=workload.has_recurrence,
        signature_count=len(workload.signatures),
        has_matrix_products=profile.matrix_kernels > 0,
        reduced_precision=workload.parameter_dtype in ("bfloat16", "float16"),
        double_precision=workload.parameter_dtype == "float64",
        blocks=profile.blocks,
        breaking=breaking_parts(profile.graph_breaks),
        varying=varying_axes(workload.signatures),
        buckets=profile.buckets,
        padding_problem=profile.padding_problem,
        free_batch=profile.free_batch,
        compiler_problem=problem,
        draws=profile.random,
        unverifiable=unverifiable if profile.unrepeatable and workload.training is None else "",
        missing=tuple(toolchain.missing.items()),
        unpackable=profile.unpackable,
        training=workload.training,
        micro_batches=profile.micro_batches,
        recompute_problem=profile.recompute_problem,
        in_script=workload.script is not None,
        optimizer_share=profile.step.optimizer_share if profile.step else None,
        multiplies_in_tf32=_multiplies_in_tf32(workload.settings),
        gpus=workload.gpus,
        fuses_attention=profile.attention_share > 0,
    )


def _multiplies_in_tf32(settings: TorchSettings | None) -> bool:
    """Whether the user's process had TF32 on, by torch's setting for the backend if it has one."""
    if settings is None:
        return False
    by_backend = settings.precisions.get("cuda.matmul", "")
    return by_backend == "tf32" if by_backend else settings.matmul_precision in ("high", "medium")


def varying_axes(signatures: Sequence[Signature]) -> tuple[AxisRange, ...]:
    """Return the axes whose sizes differ between signatures of one structure; none if the structures differ."""
    forms = {tuple((t.path, t.dtype, len(t.shape)) for t in s.tensors) for s in signatures}
    constants = {tuple(sorted(s.constants)) for s in signatures}
    if len(forms) != 1 or constants != {()}:  # leaves are counted among tensors, so there must be nothing else
        return ()
    found = []
    for leaf, tensors in enumerate(zip(*(s.tensors for s in signatures), strict=True)):
        for axis in range(len(tensors[0].shape)):
            sizes = {tensor.shape[axis] for tensor in tensors}
            if len(sizes) > 1:
                found.append(AxisRange(leaf, axis, low=2, high=reach(max(sizes))))
    return tuple(found)


def hottest_parts(submodules: Sequence[Submodule]) -> tuple[str, ...]:
    """Return the submodules that take most of a call, the hottest first, none inside another.

    They are the parts of the first submodule, from the model down, that does not spend nearly all of its time in one
    part.
    """
    called = {one.path for one in submodules}
    root = ""
    while True:
        parts = [one for one in submodules if one.path and _caller(one.path, called) == root]
        largest = max(parts, key=lambda one: one.whole_share, default=None)
        if largest is None:
            return ()
        if largest.whole_share < _NEARLY_ALL:
            worth = [one for one in parts if one.whole_share >= _WORTH_COMPILING]
            return tuple(one.path for one in sorted(worth, key=lambda one: (-one.whole_share, one.path)))
        root = largest.path


def _caller(path: str, called: set[str]) -> str:
    """Return the nearest enclosing submodule that is itself called, which a container is not; else "", the model."""
    above = path.rpartition(".")[0]
    while above and above not in called:
        above = above.rpartition(".")[0]
    return above


def breaking_parts(breaks: Sequence[GraphBreak]) -> tuple[str, ...]:
    """Return the submodules in whose forward the graph breaks; none if it also breaks elsewhere."""
    paths = tuple(dict.fromkeys(one.path for one in breaks))
    return paths if all(paths) else ()
