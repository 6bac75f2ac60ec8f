"""A runner without processes and a clock that does not wait."""

from dataclasses import dataclass, field
from pathlib import Path

from builders import failure, measurement, profile
from msgspec.structs import replace

from autocompile.core.job import (
    BatchPoint,
    BatchProbe,
    BatchTask,
    CompiledAhead,
    CompileTask,
    FreshStart,
    FreshTask,
    LoaderTask,
    Packed,
    PackTask,
    ProfileTask,
    ToolchainTask,
    TrialTask,
)
from autocompile.core.manifest import Requirements
from autocompile.core.outcome import Failure, Toolchain
from autocompile.core.program import Program
from autocompile.core.runner import MachineEntry
from autocompile.runner.simulated import SimulatedLanes, SimulatedTask
from autocompile.runtime.catalogue import kind_of, serving_of

LOAD_S = 0.05


class FakeClock:
    """Seconds that pass only when somebody spends them."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class FakePending:
    """A task of the fake runner: it is run when it is first asked for its answer."""

    def __init__(self, run, clock):
        self.run, self.clock = run, clock
        self.reply = None
        self.pauses_s = ()

    def answer(self):
        if self.reply is None:
            began = self.clock.now
            self.reply = self.run()
            self.span_s = began, self.clock.now
        return self.reply

    def is_done(self):
        return self.reply is not None

    def cancel(self):
        pass


@dataclass
class FakeRunner:
    """Answers trials from a function of the plan: `(ratio, startup_s)`, or a Failure, or an exception to raise.

    A child ends at its limits. A program that was compiled before is compiled from its cache, as in a real run. What is
    loaded takes `startup_s` to pack, and `LOAD_S` to start. `artifact` is what a process answers that starts as
    production does; by default what is answered of the plan.
    """

    answer: object
    clock: FakeClock
    toolchain_problem: str = ""
    profiled: object = field(default_factory=profile)
    seconds: float = 3.0
    ran: list = field(default_factory=list)
    forgotten: list = field(default_factory=list)
    limits: list = field(default_factory=list)
    rivals: list = field(default_factory=list)
    packs: object = lambda _task: failure("unsupported", "pack", "it does not export")
    artifact: object = None
    probes: object = lambda task: BatchProbe(1, "", tuple(BatchPoint(n, 10.0 / n, "") for n in task.sizes or (1, 2, 4)))
    loaders: object = lambda _task: failure("error", "loader", "its dataset is gone")
    probed: list = field(default_factory=list)
    packed: list = field(default_factory=list)
    packed_plans: list = field(default_factory=list)
    directory: Path = Path()
    toolchain_s: float = 0.0
    profile_s: float = 0.0
    pack_s: dict = field(default_factory=dict)
    started: set = field(default_factory=set)
    load_s: float = 0.0  # seconds of a process that measures the artifact; 0: the default

    lanes = 1

    @property
    def machines(self):
        return (MachineEntry("", self.lanes),)

    def submit(self, task, limits, *, cache, exclusive, machine=0):
        return FakePending(lambda: self.run(task, limits), self.clock)

    def first_done(self, pending):
        next(iter(pending)).answer()
        return pending[0]

    def run(self, task, limits):
        if isinstance(task, ToolchainTask):
            self.clock.now += self.toolchain_s
            return Toolchain(1.0, "AVX2", self.toolchain_problem, {"toolchain": self.toolchain_s or 1.0})
        if isinstance(task, ProfileTask):
            self.clock.now += self.profile_s
            return self.profiled
        if isinstance(task, LoaderTask | BatchTask):
            self.probed += [task] if isinstance(task, BatchTask) else []
            return self.probes(task) if isinstance(task, BatchTask) else self.loaders(task)
        if isinstance(task, CompileTask):
            return self.compile(task, limits)
        if isinstance(task, PackTask):
            self.packed.append(task.serving)
            self.packed_plans.append(task.plan)
            return self.pack(task, limits)
        assert isinstance(task, TrialTask | FreshTask)
        return self.start(task, limits) if isinstance(task, FreshTask) else self.measure(task, limits)

    def compile(self, task, limits):
        self.ran.append(task.plan)
        answered = self.answer(task.plan)
        if isinstance(answered, Failure):
            return answered
        seconds = answered[1]
        if seconds > limits.compile_s:
            self.clock.now += limits.compile_s
            return replace(failure("timeout", "compile", "killed"), phases_s={"compile": limits.compile_s})
        return self._spend(seconds, limits) or CompiledAhead(0.0, {"compile": seconds})

    def pack(self, task, limits):
        answered = self.answer(task.plan) if task.serving.start == "load" else ()
        if isinstance(answered, BaseException):
            raise answered
        if isinstance(answered, Failure):
            return answered
        seconds = self.pack_s.get(task.serving.start, answered[1] if answered else 0.0)
        reply = self._spend(seconds, limits) or self.packs(task)
        return replace(reply, phases_s={"compile": seconds, **reply.phases_s})

    def start(self, task, limits):
        """What was packed starts in a process of its own, before anything else is asked of it as it is delivered."""
        self.started.add(task.artifact)
        if isinstance(self.artifact, Failure):
            return self.artifact
        known = self.artifact or measurement(1.0, startup_s=self._start_s(task.plan))
        startup = known.startup
        return FreshStart(0.0, 0.0, startup.build_s, startup.compile_s, 0.0, serving_of(task.plan), 0)

    def _start_s(self, plan):
        startup_s = self.answer(plan)[1]
        return min(startup_s, 2 + 0.15 * startup_s) if kind_of(plan).packs_as == "cache" else LOAD_S

    def load(self, task, limits):
        ended = self._spend(self.load_s or self.seconds, limits)
        in_trial = kind_of(task.plan).packs_as == "load" and task.artifact not in self.started
        if ended or (self.artifact is not None and not in_trial):
            return ended or self.artifact
        ratio, start_s = self.answer(task.plan)[0], self._start_s(task.plan)
        return replace(measurement(ratio, startup_s=start_s), batch_factor=float(task.plan.batch or 1))

    def measure(self, task, limits):
        if task.artifact:
            return self.load(task, limits)
        again = task.plan in self.ran
        self.ran.append(task.plan)
        self.limits.append(limits)
        self.rivals.append(task.timing.rival)
        answered = self.answer(task.plan)
        if isinstance(answered, BaseException):
            raise answered
        if not isinstance(answered, tuple):
            self.clock.now += self.seconds
            return answered
        ratio, startup_s = answered
        startup_s = min(startup_s, 2 + 0.15 * startup_s) if again else startup_s
        if startup_s > (limits.compile_s or startup_s):
            self.clock.now += limits.compile_s
            return failure("timeout", "compile", "killed")
        ended = self._spend(startup_s + self.seconds, limits)
        return ended or replace(measurement(ratio, startup_s=startup_s), batch_factor=float(task.plan.batch or 1))

    def _spend(self, seconds, limits):
        """Let a child's time pass; the failure of one that is killed at its limit, or None."""
        self.clock.now += min(seconds, limits.total_s)
        return failure("timeout", "timing", "killed") if seconds > limits.total_s else None

    def forget(self, cache):
        self.forgotten.append(cache)


class LanesRunner(FakeRunner):
    """The same in several lanes.

    `log`: each task that ended, what it was of, when it ran, and whether it was alone; `asked`: each, with its limits.
    """

    def __init__(self, answer, clock, lanes, **fields):
        super().__init__(answer, clock, **fields)
        self.lanes = lanes
        self.log, self.asked = [], []
        self._running = SimulatedLanes(lanes, clock, self._note)

    def submit(self, task, limits, *, cache, exclusive, machine=0):
        self.asked.append((type(task).__name__, limits))
        began = self.clock.now
        reply = self.run(task, limits)
        seconds, self.clock.now = self.clock.now - began, began
        pending = SimulatedTask(reply, seconds, exclusive, f"{type(task).__name__} {cache}", self._running)
        self._running.add(pending)
        return pending

    def first_done(self, pending):
        return self._running.wait_for(pending)

    def _note(self, task):
        self.log.append((task.name, task.span_s, task.exclusive))


def packs_a_program(task):
    """As a child packs a program; the compiler's cache is not reached."""
    if task.serving.start != "load":
        return failure("unsupported", "pack", "nothing was cached")
    directory = Path(task.directory)
    directory.mkdir(parents=True)
    (directory / "program0.pt2").write_bytes(b"machine code")
    program = Program(
        positional=1, keywords=(), input_spec="[]", guards=(), axes=(), output_spec="[]", outputs=(None,),
        files=("program0.pt2",),
    )  # fmt: skip
    return Packed((program,), Requirements("2.13.0", "x86_64", ("avx2",), ""))


def packs_either(task):
    """As a child packs whatever it is asked for."""
    if task.serving.start == "load":
        return packs_a_program(task)
    directory = Path(task.directory)
    directory.mkdir(parents=True)
    (directory / "graph.so").write_bytes(b"machine code")
    return Packed((), Requirements("2.13.0", "x86_64", ("avx2",), "", "3.11"), phases_s={"compile": 3.0})
