"""What production loads: the manifest of an artifact, with all that decides whether and how it is used."""

from __future__ import annotations

from autocompile.core.envelope import Segment
from autocompile.core.estimate import Estimate
from autocompile.core.identity import Identity
from autocompile.core.plan import Plan
from autocompile.core.program import Program
from autocompile.core.serde import Record
from autocompile.core.serving import Serving
from autocompile.core.workload import GenerationEntry, Signature, TorchSettings, TrainingEntry

MANIFEST_VERSION = 5


class FileEntry(Record, frozen=True):
    """One file that loading opens: its path within the recommendation's directory, with `/` between the parts."""

    path: str
    sha256: str
    size_bytes: int


class Requirements(Record, frozen=True):
    """What an artifact needs to be used: versions and the kind of machine that its code was made for.

    `instructions`: the processor's extensions that the compiler was free to use. `capability`: the
    GPU's compute capability as "9.0", or "". `python`: as "3.11", or "" where it does not matter.
    `library`: the version of what the runtime that serves needs beside torch, or "". `gpu`: the GPU's name, with its
    profile where it is a MIG slice, or ""; `multiprocessors`: how many it has.
    """

    torch: str
    architecture: str
    instructions: tuple[str, ...]
    capability: str
    python: str = ""
    library: str = ""
    gpu: str = ""
    multiprocessors: int = 0


class Absence(Record, frozen=True):
    """A better way to serve that this artifact does not have, and why."""

    serving: Serving
    reason: str


class Served(Record, frozen=True):
    """How a way to serve was measured: seconds to start, seconds a call, speed-up over eager.

    Seconds a call are for the samples of one of the baseline's calls; what compiles starts with an empty cache.
    `expected`: it was packed and verified but not timed as loaded, so the figures are what is expected of it.
    """

    serving: Serving
    label: str
    plan: Plan
    startup_s: float
    latency_s: float
    speedup: Estimate
    expected: bool = False


class Standby(Record, frozen=True):
    """What serves where the model's weights are not those that the programs hold: programs that run on the model's own.

    `identity` is the model's, with the attributes that these programs depend on.
    """

    plan: Plan
    identity: Identity
    programs: tuple[Program, ...]
    requirements: Requirements
    files: tuple[FileEntry, ...]


class Manifest(Record, frozen=True):
    """All that `autocompile.load` needs. Its own digest pins the artifact, as it holds every file's.

    `serving` is the best that was packed. `identity` is the model's that was tuned; its
    attributes are those that the artifact depends on.
    `batch_factor`: samples in one of its calls, over those in a call as it was tuned with.
    `served` starts with the artifact as it is loaded, if there is one; then come the configurations that are best
    for some number of calls, eager among them, as they were measured. `envelope`: which of these to serve for how many
    calls, those of the workload that was tuned; the packed one is in it as `..., packed`.
    `weights`: a digest of each of the model's tensors, by path, where the programs have copies of them;
    `weight_samples`: of a sample of each. `training`: how the model was trained, where it is a training's
    configuration, which `autocompile.prepare` takes; `generation`: how it generates text, where `identity` is that of
    its decode step, a `Decoding`; `signatures`: the steps that it was tuned with. Its `files`, if it has any, are the
    compiler's cache, from which a process starts sooner than `serving` says. `settings`: torch's own, precision among
    them, as they were when it was tuned and packed.
    """

    manifest_version: int
    label: str
    plan: Plan
    device_type: str
    identity: Identity
    serving: Serving
    absences: tuple[Absence, ...]
    requirements: Requirements
    programs: tuple[Program, ...] = ()
    files: tuple[FileEntry, ...] = ()
    batch_factor: float = 1.0
    served: tuple[Served, ...] = ()
    envelope: tuple[Segment, ...] = ()
    weights: dict[str, str] = {}
    weight_samples: dict[str, str] = {}
    standby: Standby | None = None
    training: TrainingEntry | None = None
    generation: GenerationEntry | None = None
    signatures: tuple[Signature, ...] = ()
    settings: TorchSettings | None = None

    @property
    def all_files(self) -> tuple[FileEntry, ...]:
        """Those of the programs, and of what stands by."""
        own = {entry.path: entry for entry in (*self.files, *(self.standby.files if self.standby else ()))}
        return tuple(own.values())
