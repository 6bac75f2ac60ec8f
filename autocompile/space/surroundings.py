"""What the choices depend on, read off a workload and its profile."""

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

# A child that takes nearly all of its parent's time stands for it; the parts below are looked at instead.
_NEARLY_ALL, _WORTH_COMPILING = 0.9, 0.05


@dataclass(frozen=True)
class Surroundings:
    """What the choices depend on: device, host and workload.

    `hottest`: the submodules that take most of a call, none within another, the hottest first; `breaking`: those
    in whose forward the graph breaks; `varying`: axes whose sizes differ between the samples; `buckets`: what calls may
    be filled up to, or None and `padding_problem`. `compiler_problem`: why what needs torch's compiler cannot run here;
    `draws`: whether the workload draws random numbers; `unverifiable`: why nothing but the model itself, eager, could
    be checked. `missing`: runtimes that cannot be used here at all, with why. `loads_artifacts`: whether production
    starts from what was packed. `free_batch`: whether a call may hold another number of samples, None where that is not
    known. `training`: how the model is trained, None where it is called. Of a training: `micro_batches`, by the number
    of equal parts why a batch is not to be cut into them, "" where it may be; `recompute_problem`, why blocks cannot be
    computed again, or ""; `limits_memory`, whether the goal does; `in_script`, whether a script that is left as it is
    computes the loss; `optimizer_share`, what the optimizer takes of a step, in 0..1, None where that is not known.
    `multiplies_in_tf32`: whether torch is set to compute float32 matrix products of a GPU in TF32. `gpus`: those that
    are used, as far as that is known.
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
    training: TrainingEntry | None = None
    micro_batches: Mapping[str, str] = field(default_factory=dict)
    recompute_problem: str = ""
    limits_memory: bool = False
    in_script: bool = False
    optimizer_share: float | None = None
    multiplies_in_tf32: bool = False
    gpus: tuple[GpuKind, ...] = ()

    @property
    def block_paths(self) -> tuple[str, ...]:
        """All repeated blocks."""
        return tuple(path for block in self.blocks for path in block.paths)

    @property
    def recomputing_is_pointless(self) -> str:
        """Why there is nothing to gain by computing activations again, or ""."""
        return "" if self.limits_memory else "it saves memory and costs time, and the goal does not limit memory"


def surroundings_of(
    workload: Workload, environment: Environment, profile: Profile, toolchain: Toolchain
) -> Surroundings:
    """What the space depends on, as far as every run of this workload here finds the same."""
    problem = toolchain.problem
    if problem and workload.device_type == "cpu" and not environment.compiler:
        problem = "there is no C++ compiler on PATH; install g++ or clang++ and tune again"
    unverifiable = (
        "equal inputs give other outputs each time, also from one state of torch's random numbers, so there is nothing "
        "to compare with; draw random numbers by torch's own generator, or give them as inputs"
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
        training=workload.training,
        micro_batches=profile.micro_batches,
        recompute_problem=profile.recompute_problem,
        in_script=workload.script is not None,
        optimizer_share=profile.step.optimizer_share if profile.step else None,
        multiplies_in_tf32=_multiplies_in_tf32(workload.settings),
        gpus=workload.gpus,
    )


def _multiplies_in_tf32(settings: TorchSettings | None) -> bool:
    """As the user's process had it, by backend where this torch tells that."""
    if settings is None:
        return False
    by_backend = settings.precisions.get("cuda.matmul", "")
    return by_backend == "tf32" if by_backend else settings.matmul_precision in ("high", "medium")


def varying_axes(signatures: Sequence[Signature]) -> tuple[AxisRange, ...]:
    """Axes whose sizes differ between signatures of one form; none if the calls are of several forms."""
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
    """Submodules that take most of a call, the hottest first, none within another: the first level with a choice."""
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
    """The nearest submodule above that is called itself, which a container of modules is not; else the model, ""."""
    above = path.rpartition(".")[0]
    while above and above not in called:
        above = above.rpartition(".")[0]
    return above


def breaking_parts(breaks: Sequence[GraphBreak]) -> tuple[str, ...]:
    """The submodules in whose forward the graph breaks; none if it also breaks elsewhere."""
    paths = tuple(dict.fromkeys(one.path for one in breaks))
    return paths if all(paths) else ()
