"""The manifest of an artifact: everything that determines whether and how production uses it."""

from __future__ import annotations

from autocompile.core.envelope import Segment
from autocompile.core.estimate import Estimate
from autocompile.core.identity import Identity
from autocompile.core.plan import Plan
from autocompile.core.program import Program
from autocompile.core.serde import Record
from autocompile.core.serving import Serving
from autocompile.core.workload import GenerationEntry, Signature, TorchSettings, TrainingEntry

MANIFEST_VERSION = 7


class FileEntry(Record, frozen=True):
    """One file that loading opens: its path relative to the recommendation's directory, with `/` as the separator.

    `sha256` and `checksum` are digests of its content. The checksum is about twice as fast to compute and detects
    damage, but does not resist attacks (`runtime/digest.py`). For a file of more than 2 MiB, each is a digest of the
    digests of its pieces of 2 MiB, so that several threads can check it at once.
    """

    path: str
    sha256: str
    checksum: str
    size_bytes: int


class Requirements(Record, frozen=True):
    """What is required to use an artifact: versions, and the kind of machine that it was compiled for.

    `instructions`: the processor's extensions that the compiler was allowed to use. `capability`: the GPU's compute
    capability, such as "9.0", or "". `python`: the version, such as "3.11", or "" if it does not matter. `library`: the
    version of the library that the runtime needs in addition to torch, or "". `gpu`: the GPU's name, with the profile
    of a MIG slice, or "". `multiprocessors`: how many the GPU has.
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
    """One way to serve, and its measurements: seconds to start, seconds per call, speed-up over eager.

    Seconds per call are for the samples of one of the baseline's calls. If it compiles, the start is with an empty
    cache. `expected`: it was packed and verified but not timed after loading, so the figures are estimates.
    """

    serving: Serving
    label: str
    plan: Plan
    startup_s: float
    latency_s: float
    speedup: Estimate
    expected: bool = False


class Standby(Record, frozen=True):
    """Programs that use the model's own weights. They serve if these differ from the weights in the packed programs.

    `identity` is the model's identity, with the attributes that these programs depend on.
    """

    plan: Plan
    identity: Identity
    programs: tuple[Program, ...]
    requirements: Requirements
    files: tuple[FileEntry, ...]


class Manifest(Record, frozen=True):
    """Everything that `autocompile.load` and `autocompile.prepare` need.

    The digest of the manifest identifies the artifact, because the manifest contains the digest of every file.

    Attributes:
        identity: The identity of the model that was tuned, with the attributes that the artifact depends on.
        serving: The best way to serve that was packed.
        files: The files of the artifact. If training was tuned, they are the compiler's cache, with which a process
            starts faster than `serving` says.
        batch_factor: Samples per call of the artifact, divided by the samples per call of the workload.
        served: The loaded artifact, if there is one, then the configurations that are best for some number of calls,
            with their measurements. Eager is one of them.
        envelope: Which of these to serve for how many calls of the workload. The packed one is called `..., packed`.
        weights: A digest of each of the model's tensors, by path, if the programs contain copies of them.
        weight_samples: A digest of a sample of each of these tensors.
        standby: Programs that use the model's own weights, or null.
        training: How the model was trained, if training was tuned.
        generation: How the model generates text, if decode steps or prompts were tuned. `identity` is then that of the
            decode step, a `Decoding`, or of the call for a prompt, a `Prompting`.
        prompts: If the prompts are served as well, the digest of their artifact, which is in a directory named by it.
        signatures: The training steps that were tuned.
        settings: Torch's settings, such as its precision, at the time of tuning and packing.
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
    prompts: str = ""
    signatures: tuple[Signature, ...] = ()
    settings: TorchSettings | None = None

    @property
    def all_files(self) -> tuple[FileEntry, ...]:
        """The files of the programs, and of the standby."""
        own = {entry.path: entry for entry in (*self.files, *(self.standby.files if self.standby else ()))}
        return tuple(own.values())
