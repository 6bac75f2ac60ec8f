"""What production loads: the manifest of an artifact, with all that decides whether and how it is used."""

from __future__ import annotations

from typing import Literal, get_args

from autocompile.core.envelope import Segment
from autocompile.core.estimate import Estimate
from autocompile.core.identity import Identity
from autocompile.core.plan import Plan
from autocompile.core.serde import Record

MANIFEST_VERSION = 3

# Best first. `aot`: a compiled program, `cache`: the compiler's own cache, carried; `jit` compiles at the first call.
Tier = Literal["aot", "cache", "jit", "eager"]
# Those that hold more than the configuration.
PackedTier = Literal["aot", "cache"]
PACKED_TIERS: tuple[PackedTier, ...] = get_args(PackedTier)


class FileEntry(Record, frozen=True):
    """One file that loading opens: its path within the recommendation's directory, with `/` between the parts."""

    path: str
    sha256: str
    size_bytes: int


class Axis(Record, frozen=True):
    """A size that may differ from call to call: every axis of this name has one size, from `low` to `high`."""

    name: str
    low: int
    high: int


class TensorGuard(Record, tag="tensor", frozen=True):
    """What one tensor argument must be; `shape` has a size, or an axis's name. Strides are in elements.

    `layout`: `contiguous`, `channels_last`, or `strided`, which takes exactly `stride`.
    """

    path: str
    dtype: str
    shape: tuple[int | str, ...]
    layout: Literal["contiguous", "channels_last", "strided"]
    stride: tuple[int, ...] = ()


class ConstantGuard(Record, tag="constant", frozen=True):
    """An argument that is no tensor, as Python writes it: the program holds for this value only."""

    path: str
    literal: str


class Weight(Record, frozen=True):
    """A tensor that the program takes from the model (or, if `lifted`, from the artifact's constants).

    `tied` are the paths of others in the model that were the same memory: the program knows one of them.
    """

    name: str
    path: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    lifted: bool = False
    tied: tuple[str, ...] = ()


class Program(Record, frozen=True):
    """One compiled program.

    `file`: the package. `positional` and `keywords` are the call's form, `input_spec` the structure of
    its arguments and `output_spec` that of its outputs, as torch writes a pytree. `guards` are its
    arguments' in the order in which they are flattened. `outputs`: for each leaf of the output a
    literal, or None where it is the program's next tensor. `placement_file` is the compiled check of where
    the weights lie, "" if there is none.
    """

    file: str
    positional: int
    keywords: tuple[str, ...]
    input_spec: str
    guards: tuple[TensorGuard | ConstantGuard, ...]
    axes: tuple[Axis, ...]
    weights: tuple[Weight, ...]
    constants_file: str
    output_spec: str
    outputs: tuple[str | None, ...]
    placement_file: str = ""


def files_of(program: Program) -> tuple[str, ...]:
    """The files that a program is put together of."""
    return tuple(filter(None, (program.file, program.constants_file, program.placement_file)))


class Requirements(Record, frozen=True):
    """What an artifact needs to be used: versions and the kind of machine that its code was made for.

    `instructions`: the processor's extensions that the compiler was free to use. `capability`: the
    GPU's compute capability as "9.0", or "". `python`: as "3.11", or "" where it does not matter.
    """

    torch: str
    architecture: str
    instructions: tuple[str, ...]
    capability: str
    python: str = ""


class Absence(Record, frozen=True):
    """A better tier that this artifact does not have, and why."""

    tier: Tier
    reason: str


class Served(Record, frozen=True):
    """How a way to serve was measured: seconds to start, seconds a call, speed-up over eager.

    Seconds a call are for the samples of one of the baseline's calls; `jit` starts with an empty compiler cache.
    `expected`: it was packed and verified but not timed as loaded, so the figures are what is expected of it.
    """

    tier: Tier
    label: str
    plan: Plan
    startup_s: float
    latency_s: float
    speedup: Estimate
    expected: bool = False


class Manifest(Record, frozen=True):
    """All that `autocompile.load` needs. Its own digest pins the artifact, as it holds every file's.

    `tier` is the best that was packed. `identity` is the model's that was tuned; its
    attributes are those that the artifact depends on.
    `batch_factor`: samples in one of its calls, over those in a call as it was tuned with.
    `served` starts with the artifact as it is loaded, if there is one; then come the configurations that are best
    for some number of calls, eager among them, as they were measured. `envelope`: which of these to serve for how many
    calls, those of the workload that was tuned; the packed one is in it as `..., packed`.
    """

    manifest_version: int
    label: str
    plan: Plan
    device_type: str
    identity: Identity
    tier: Tier
    absences: tuple[Absence, ...]
    requirements: Requirements
    programs: tuple[Program, ...] = ()
    files: tuple[FileEntry, ...] = ()
    batch_factor: float = 1.0
    served: tuple[Served, ...] = ()
    envelope: tuple[Segment, ...] = ()


def accepted_calls(program: Program) -> tuple[str, ...]:
    """The calls that a program takes, a line for each argument."""
    ranges = {axis.name: f"{axis.low}..{axis.high}" for axis in program.axes}
    return tuple(_argument_line(guard, ranges) for guard in program.guards)


def _argument_line(guard: TensorGuard | ConstantGuard, ranges: dict[str, str]) -> str:
    name = guard.path.split("]", 1)[1].strip("[]'") or guard.path
    if isinstance(guard, ConstantGuard):
        return f"{name}: {guard.literal}"
    sizes = ", ".join(str(size) if isinstance(size, int) else ranges[size] for size in guard.shape)
    return f"{name}: {guard.dtype} ({sizes})"
