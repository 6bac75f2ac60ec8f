"""What the parent asks of a child."""

from __future__ import annotations

from typing import Literal

from autocompile.core.export import Verified
from autocompile.core.manifest import Requirements
from autocompile.core.outcome import Failure, Measurement, Startup, Toolchain
from autocompile.core.pipeline import Loaders
from autocompile.core.plan import Plan
from autocompile.core.profile import Profile
from autocompile.core.program import Program
from autocompile.core.serde import Record
from autocompile.core.serving import Serving
from autocompile.core.tolerance import Tolerance
from autocompile.core.workload import Workload


class Timing(Record, frozen=True):
    """How well to time: stop at `precision` (half the interval, relative) or after `limit_s` seconds.

    Stop too when the ratio is surely above `rival`, a ratio beyond which the candidate cannot win; 0 is none.
    `calls`: no precision is enough before so many calls were timed, as a quantile takes. `in_a_row`: calls follow one
    another without waiting for the device, as for a throughput; it is waited for at the end of a block, so that a block
    gives one time for all its calls. On a CPU that is no difference.
    """

    precision: float
    limit_s: float
    rival: float = 0.0
    calls: int = 0
    in_a_row: bool = False


class Acceptance(Record, frozen=True):
    """When an output is correct: within `tolerance`, or with a pickled metric at `metric`, within `max_drop`."""

    tolerance: Tolerance
    metric: str = ""
    max_drop: float = 0.0


class Watching(Record, frozen=True):
    """How long a script is watched: `seconds` from its first call of a module, or `calls` of one module.

    `module`: the one to tune, by the name of its class or of a variable of the script; "" chooses. `function`: one
    whose calls are tuned instead, as `pkg.mod:name`, or `name` where the script itself defines it.
    """

    seconds: float = 30.0
    calls: int = 2000
    module: str = ""
    function: str = ""


class CaptureTask(Record, tag="capture", frozen=True):
    """Run the user's `script` with its `arguments`, and spool its model and inputs into `directory`.

    With `tries_loaders`, a DataLoader among them is tried with other settings too. A script that defines no workload,
    or of which a module or a function was asked for, or that is run as the module `name` (as `python -m` does), is
    watched instead. What it prints also goes to the named pipe `shows`, if there is one.
    """

    script: str
    directory: str
    tries_loaders: bool = False
    arguments: tuple[str, ...] = ()
    watching: Watching = Watching()
    name: str = ""
    shows: str = ""


class ToolchainTask(Record, tag="toolchain-task", frozen=True):
    """Compile something trivial, so that one-off costs of this machine are paid and known."""

    device: str


class ProfileTask(Record, tag="profile-task", frozen=True):
    """Profile the baseline, and leave the float64 reference in `reference`, if it is for a search.

    A pickled metric at `metric` is tried on the baseline's outputs. `depth`: what a search needs, or all that
    can be said in half a minute, for reading.
    """

    workload: Workload
    reference: str
    timing: Timing
    seed: int
    metric: str = ""
    depth: Literal["brief", "full"] = "brief"


class BatchTask(Record, tag="batch-task", frozen=True):
    """Prove that a call's samples are independent, and try batch `sizes` in eager (none: doubling).

    Only sizes smaller than `below`, if it is not 0.
    """

    workload: Workload
    sizes: tuple[int, ...]
    below: int


class BatchPoint(Record, frozen=True):
    """One batch size in eager: milliseconds a sample, or the problem, and null."""

    size: int
    sample_ms: float | None
    problem: str


class BatchProbe(Record, tag="batch-probe", frozen=True):
    """What was found of the batch: the size `given`, why it must stay (`problem`, or ""), and other sizes."""

    given: int
    problem: str
    points: tuple[BatchPoint, ...]
    phases_s: dict[str, float] = {}


class LoaderTask(Record, tag="loader-task", frozen=True):
    """Train in eager while the workload's DataLoader gives batches, in its own and other settings, for `seconds`."""

    workload: Workload
    seconds: float


class TrialTask(Record, tag="trial-task", frozen=True):
    """Build `plan`, compare its outputs with `reference`, and time it against the baseline.

    With `artifact`, a recommendation's directory, what is loaded from there is measured in its place.
    `learning_s`: for how many seconds, at most, what trains or generates does so beside eager as well; 0: not at all.
    """

    workload: Workload
    plan: Plan
    reference: str
    timing: Timing
    acceptance: Acceptance
    seed: int
    artifact: str = ""
    learning_s: float = 0.0


class CompileTask(Record, tag="compile-task", frozen=True):
    """Compile `plan` as a trial of it does, and leave nothing but the compiler's cache, from which that one starts."""

    workload: Workload
    plan: Plan


class CompiledAhead(Record, tag="compiled-ahead", frozen=True):
    """It was compiled, in the phase `compile`, which ends with a pass over the samples; a steady one takes so long."""

    steady_pass_s: float
    phases_s: dict[str, float] = {}


class PackTask(Record, tag="pack-task", frozen=True):
    """Make what production loads of `plan`, to be served so, and leave its files in `directory`."""

    workload: Workload
    plan: Plan
    serving: Serving
    reference: str
    acceptance: Acceptance
    directory: str


class Packed(Record, tag="packed", frozen=True):
    """What was packed: the programs, if any, and what they need to be loaded; `notes` are worth telling.

    `attributes`: plain attributes of the model that are written into the programs, by path; null where the model's own
    code runs. `weights`: digests of the model's tensors, by path, where the programs have copies of them;
    `weight_samples`: those of a sample of each.
    """

    programs: tuple[Program, ...]
    requirements: Requirements
    notes: tuple[str, ...] = ()
    attributes: dict[str, str] | None = None
    phases_s: dict[str, float] = {}
    weights: dict[str, str] = {}
    weight_samples: dict[str, str] = {}


class ExportTask(Record, tag="export-task", frozen=True):
    """Write the model as a file of `format`, by the plan's runtime, into `directory`, and compare what it computes."""

    workload: Workload
    plan: Plan
    format: str
    reference: str
    acceptance: Acceptance
    directory: str


class Exported(Record, tag="exported", frozen=True):
    """What was written: the `program`, whose own record is a `core.export.Interface`, and how it was verified."""

    program: Program
    verified: Verified
    phases_s: dict[str, float] = {}


class FreshTask(Record, tag="fresh-task", frozen=True):
    """Load `artifact`, packed of `plan`, in a new process, and call it with the samples in the plan's batches.

    A job of its own: beside a trial on the same GPU, another process has less memory, and may wait.
    """

    workload: Workload
    plan: Plan
    artifact: str


class FreshStart(Record, tag="fresh-start", frozen=True):
    """Seconds of one start: importing torch, having the model, loading, a first and a steady pass over the samples.

    `serving` is what served it; `cache_misses` counts what the compiler did not find in its cache.
    """

    import_s: float
    model_s: float
    load_s: float
    first_pass_s: float
    steady_pass_s: float
    serving: Serving
    cache_misses: int
    phases_s: dict[str, float] = {}

    @property
    def startup(self) -> Startup:
        """What starting costs beyond importing torch, having the model, and the calls themselves."""
        compile_s = max(0.0, self.first_pass_s - self.steady_pass_s)
        return Startup(import_s=0.0, build_s=self.load_s, compile_s=compile_s, warmup_s=0.0)


_Timed = ProfileTask | LoaderTask | BatchTask | TrialTask | FreshTask
Task = CaptureTask | ToolchainTask | CompileTask | PackTask | ExportTask | _Timed

_Made = CompiledAhead | Packed | Exported
Reply = Measurement | Failure | Profile | Loaders | BatchProbe | Workload | Toolchain | FreshStart | _Made


class Limits(Record, frozen=True):
    """When a child is killed: `total_s` of wall time, `compile_s` in the compiling phase alone.

    `memory_bytes` bounds what it may allocate on the host; 0 sets no bound.
    """

    total_s: float
    compile_s: float = 0.0
    memory_bytes: int = 0


class Job(Record, frozen=True):
    """One child's work: its task, a directory of its own, and the compiler cache it may use.

    `headers_directory` is where the compiler keeps precompiled headers, which belong to the machine, and not to a run.
    """

    name: str
    task: Task
    directory: str
    cache_directory: str
    headers_directory: str
    limits: Limits
