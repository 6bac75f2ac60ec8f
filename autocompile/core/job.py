"""The tasks that the parent process gives to a child process, and their replies."""

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
    """How precisely to time: stop at `precision` (half the interval, relative), or after `limit_s` seconds.

    Timing also stops when the ratio is surely above `rival`, beyond which the candidate cannot win; 0 means no rival.
    `calls`: the least number of calls to time, as quantiles need. `in_a_row`: whether to issue calls without waiting
    for the device in between, as for a throughput. The device is then synchronized at the end of each block, so that a
    block gives one time for all its calls. On a CPU this makes no difference.
    """

    precision: float
    limit_s: float
    rival: float = 0.0
    calls: int = 0
    in_a_row: bool = False


class Acceptance(Record, frozen=True):
    """When an output is correct: within `tolerance`, or within `max_drop` of a metric, pickled in the file `metric`."""

    tolerance: Tolerance
    metric: str = ""
    max_drop: float = 0.0


class Watching(Record, frozen=True):
    """How long a script is watched: `seconds` from its first call of a module, or `calls` of one module.

    `module`: the module to tune, by the name of its class or of a variable of the script; "" to let autocompile choose.
    `function`: a function whose calls are tuned instead, as `pkg.mod:name`, or `name` if the script itself defines it.
    """

    seconds: float = 30.0
    calls: int = 2000
    module: str = ""
    function: str = ""


class CaptureTask(Record, tag="capture", frozen=True):
    """Run the user's `script` with its `arguments`, and write its model and inputs to `directory`.

    The script is watched if it defines no workload, if a module or a function of it is to be tuned, or if it is run as
    the module `name` (as by `python -m`). `tries_loaders`: whether to also time its DataLoader with other settings.
    `shows`: a named pipe that gets a copy of the script's output, or "".
    """

    script: str
    directory: str
    tries_loaders: bool = False
    arguments: tuple[str, ...] = ()
    watching: Watching = Watching()
    name: str = ""
    shows: str = ""


class ToolchainTask(Record, tag="toolchain-task", frozen=True):
    """Compile a trivial function, to pay and measure the one-off costs of the compiler on this machine."""

    device: str


class ProfileTask(Record, tag="profile-task", frozen=True):
    """Profile the baseline. For a search, also write the float64 reference to the file `reference`.

    `metric`: the path of a pickled metric, which is tried on the baseline's outputs. `depth`: `brief` for what a search
    needs, `full` for everything that can be measured in half a minute.
    """

    workload: Workload
    reference: str
    timing: Timing
    seed: int
    metric: str = ""
    depth: Literal["brief", "full"] = "brief"


class BatchTask(Record, tag="batch-task", frozen=True):
    """Prove that the samples of a call are independent, and time batch `sizes` in eager (empty: doubling sizes).

    `below`: only try smaller sizes than this; 0 means no limit.
    """

    workload: Workload
    sizes: tuple[int, ...]
    below: int


class BatchPoint(Record, frozen=True):
    """One batch size in eager: milliseconds per sample; null if there was a `problem`."""

    size: int
    sample_ms: float | None
    problem: str


class BatchProbe(Record, tag="batch-probe", frozen=True):
    """The result of a BatchTask: the size `given`, why it cannot be changed (`problem`, or ""), and other sizes."""

    given: int
    problem: str
    points: tuple[BatchPoint, ...]
    phases_s: dict[str, float] = {}


class LoaderTask(Record, tag="loader-task", frozen=True):
    """Train in eager for `seconds`, with batches from the workload's DataLoader, in its own and in other settings."""

    workload: Workload
    seconds: float


class TrialTask(Record, tag="trial-task", frozen=True):
    """Build `plan`, compare its outputs with `reference`, and time it against the baseline.

    `artifact`: the directory of a recommendation, which is loaded and measured instead of building the plan; or "".
    `learning_s`: for at most how many seconds the candidate also trains, or generates text, in comparison with eager;
    0 means not at all. `prompts`: the directory of a recommendation for prompts, which these texts use too; or "".
    """

    workload: Workload
    plan: Plan
    reference: str
    timing: Timing
    acceptance: Acceptance
    seed: int
    artifact: str = ""
    learning_s: float = 0.0
    prompts: str = ""


class CompileTask(Record, tag="compile-task", frozen=True):
    """Compile `plan` in the same way as its trial does, to fill the compiler's cache for that trial."""

    workload: Workload
    plan: Plan


class CompiledAhead(Record, tag="compiled-ahead", frozen=True):
    """The result of a CompileTask.

    The phase `compile` ends with a pass over the samples; `steady_pass_s` is the duration of a steady pass.
    """

    steady_pass_s: float
    phases_s: dict[str, float] = {}


class PackTask(Record, tag="pack-task", frozen=True):
    """Pack `plan` for production, to be served in the way of `serving`, and write the files to `directory`."""

    workload: Workload
    plan: Plan
    serving: Serving
    reference: str
    acceptance: Acceptance
    directory: str


class Packed(Record, tag="packed", frozen=True):
    """What was packed: the programs, if any, and what is required to load them.

    `notes`: remarks for the user. `attributes`: plain attributes of the model that are constants in the programs, by
    path; null if the model's own code runs. `state`: as in `Identity`. `weights`: digests of the model's tensors, by
    path, if the programs contain copies of them; `weight_samples`: digests of a sample of each.
    """

    programs: tuple[Program, ...]
    requirements: Requirements
    notes: tuple[str, ...] = ()
    attributes: dict[str, str] | None = None
    state: dict[str, str] = {}
    phases_s: dict[str, float] = {}
    weights: dict[str, str] = {}
    weight_samples: dict[str, str] = {}


class ExportTask(Record, tag="export-task", frozen=True):
    """Write the model as a file of `format` into `directory`, with the plan's runtime, and verify its outputs."""

    workload: Workload
    plan: Plan
    format: str
    reference: str
    acceptance: Acceptance
    directory: str


class Exported(Record, tag="exported", frozen=True):
    """The exported `program`, whose `own` record is a `core.export.Interface`, and how it was verified."""

    program: Program
    verified: Verified
    phases_s: dict[str, float] = {}


class FreshTask(Record, tag="fresh-task", frozen=True):
    """Load `artifact`, which was packed from `plan`, in a new process, and call it with the samples.

    This is a separate job, because a trial that runs on the same GPU at the same time would take memory, and delay it.
    """

    workload: Workload
    plan: Plan
    artifact: str


class FreshStart(Record, tag="fresh-start", frozen=True):
    """Seconds of one start: importing torch, creating the model, loading, a first and a steady pass over the samples.

    `serving` is how the calls were served; `cache_misses` counts what the compiler did not find in its cache.
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
        """The cost of starting beyond importing torch, creating the model, and the calls themselves."""
        compile_s = max(0.0, self.first_pass_s - self.steady_pass_s)
        return Startup(import_s=0.0, build_s=self.load_s, compile_s=compile_s, warmup_s=0.0)


_Timed = ProfileTask | LoaderTask | BatchTask | TrialTask | FreshTask
Task = CaptureTask | ToolchainTask | CompileTask | PackTask | ExportTask | _Timed

_Made = CompiledAhead | Packed | Exported
Reply = Measurement | Failure | Profile | Loaders | BatchProbe | Workload | Toolchain | FreshStart | _Made


class Limits(Record, frozen=True):
    """When a child process is killed: after `total_s` of wall time, or `compile_s` in the compiling phase.

    `memory_bytes` limits its allocations on the host; 0 means no limit.
    """

    total_s: float
    compile_s: float = 0.0
    memory_bytes: int = 0


class Job(Record, frozen=True):
    """The work of one child process: its task, its directory, and the compiler cache that it may use.

    `headers_directory` is for precompiled headers of the compiler, which belong to the machine rather than to a run.
    """

    name: str
    task: Task
    directory: str
    cache_directory: str
    headers_directory: str
    limits: Limits
