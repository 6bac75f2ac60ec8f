"""A runner without processes and a clock without time."""

from dataclasses import dataclass, field

from builders import failure, measurement, profile

from autocompile.core.job import ProfileTask, ToolchainTask, TrialTask
from autocompile.core.outcome import Toolchain


class FakeClock:
    """Seconds that pass only when somebody spends them."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@dataclass
class FakeRunner:
    """Answers trials from a function of the plan: `(ratio, startup_s)`, or a Failure, or an exception to raise."""

    answer: object
    clock: FakeClock
    toolchain_problem: str = ""
    profiled: object = field(default_factory=profile)
    seconds: float = 3.0
    ran: list = field(default_factory=list)
    forgotten: list = field(default_factory=list)
    limits: list = field(default_factory=list)
    rivals: list = field(default_factory=list)

    def run(self, task, limits, *, cache):
        if isinstance(task, ToolchainTask):
            return Toolchain(1.0, "AVX2", self.toolchain_problem, {"toolchain": 1.0})
        if isinstance(task, ProfileTask):
            return self.profiled
        assert isinstance(task, TrialTask)
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
        if startup_s > (limits.compile_s or startup_s):
            self.clock.now += limits.compile_s
            return failure("timeout", "compile", "killed")
        self.clock.now += self.seconds + startup_s
        return measurement(ratio, startup_s=startup_s)

    def forget(self, cache):
        self.forgotten.append(cache)
