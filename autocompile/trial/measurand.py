"""The object that a trial measures: a plan built in this process, or an artifact as production loads it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from autocompile.core.job import TrialTask
from autocompile.core.outcome import Failure, Startup
from autocompile.core.plan import Plan
from autocompile.runtime.building import built, runtime
from autocompile.runtime.catalogue import kind_of
from autocompile.runtime.preparing import IMPORT_S
from autocompile.trial.check.new_sizes import Unseen, probe_unseen
from autocompile.trial.check.randomness import drawing_as_eager
from autocompile.trial.pack.loaded import LoadedArtifact
from autocompile.trial.phases import Phases
from autocompile.workload.call import Call
from autocompile.workload.samples import Sample
from autocompile.workload.step import Step


@dataclass(frozen=True)
class Warmup:
    """Seconds until steady state: the first pass, the warm-up passes after it, and a pass in steady state."""

    first_pass_s: float
    passes_s: tuple[float, ...]
    steady_pass_s: float


class Measurand(ABC):
    """The candidate's `step`, with its own state, and everything that differs between a built plan and an artifact."""

    step: Step

    def __init__(self, task: TrialTask, baseline: Step, samples: Sequence[Sample]) -> None:
        self._task, self._baseline, self._samples = task, baseline, samples

    @abstractmethod
    def check_compiled(self) -> Failure | None:
        """After the first pass, return a Failure if nothing was compiled although the plan compiles, else None."""

    @abstractmethod
    def probe_unseen(
        self, candidate: Step, baseline: Step, samples: Sequence[Sample], *, left_s: float, random: bool
    ) -> Unseen:
        """Run the `candidate`, which is compiled in the same way as the step, on sizes that no sample has.

        Recompiling is forbidden meanwhile. `random`: whether both steps draw random numbers (the same ones).
        """

    @cached_property
    def drawing_as_eager(self) -> Step | None:
        """The same step, built again so that it draws eager's random numbers; None if the step already does.

        This also stands for a loaded artifact, which was compiled with the same plan.
        """
        plan = self._task.plan
        if not kind_of(plan).compiles and plan.micro_batches == 1:
            return None
        return built(self._baseline, drawing_as_eager(self._task.plan), self._samples, isolate=True)

    @cached_property
    def laid_out(self) -> Step | None:
        """The baseline in the plan's memory format, which sets the order of its draws; None if the plan sets none."""
        layout = self._task.plan.memory_format
        return built(self._baseline, Plan(memory_format=layout), isolate=True) if layout else None

    @abstractmethod
    def check_served(self) -> None:
        """Raise ServedOtherwise if something other than the measured artifact served the calls."""

    @abstractmethod
    def startup(self, warmup: Warmup, phases: Phases) -> Startup:
        """Return the time that a new process needs until steady state."""


class BuiltHere(Measurand):
    """A plan, built and compiled in this process."""

    def __init__(self, task: TrialTask, baseline: Step, samples: Sequence[Sample]) -> None:
        super().__init__(task, baseline, samples)
        began = time.perf_counter()
        self.step = built(baseline, task.plan, samples, isolate=True)
        self._compiled_s = time.perf_counter() - began if building_phase(task) == "compile" else 0.0

    def check_compiled(self) -> Failure | None:
        message = runtime(self._task.plan.runtime).fault()
        return Failure(stage="compile", kind="unsupported", message=message, cause="skipped") if message else None

    def probe_unseen(
        self, candidate: Step, baseline: Step, samples: Sequence[Sample], *, left_s: float, random: bool
    ) -> Unseen:
        if not kind_of(self._task.plan).recompiles or not isinstance(baseline, Call):
            return Unseen()
        return probe_unseen(candidate, baseline, samples, self._task, left_s=left_s, random=random)

    def check_served(self) -> None:
        """Do nothing: there is nothing else here that could have served the calls."""

    def startup(self, warmup: Warmup, phases: Phases) -> Startup:
        """Return the start-up time of this process, whose compiler cache was empty."""
        return Startup(
            import_s=IMPORT_S[self._task.plan.runtime],
            build_s=phases.seconds["build"],
            compile_s=self._compiled_s + max(0.0, warmup.first_pass_s - warmup.steady_pass_s),
            warmup_s=_beyond_steady(warmup),
        )


def _beyond_steady(warmup: Warmup) -> float:
    return max(0.0, sum(warmup.passes_s) - len(warmup.passes_s) * warmup.steady_pass_s)


class Delivered(Measurand):
    """A loaded artifact. Packing has fixed what it compiles, and for which sizes."""

    def __init__(self, task: TrialTask, baseline: Call, samples: Sequence[Sample]) -> None:
        super().__init__(task, baseline, samples)
        # With its own buffers, like a plan that is built here.
        own = baseline.twin().model
        self.step: LoadedArtifact = LoadedArtifact(task.artifact, own, task.plan.threads)

    def check_compiled(self) -> Failure | None:
        return None

    def probe_unseen(
        self,
        candidate: Step,  # noqa: ARG002
        baseline: Step,  # noqa: ARG002
        samples: Sequence[Sample],  # noqa: ARG002
        *,
        left_s: float,  # noqa: ARG002
        random: bool,  # noqa: ARG002
    ) -> Unseen:
        return Unseen()

    def check_served(self) -> None:
        self.step.check_served()

    def startup(self, warmup: Warmup, phases: Phases) -> Startup:  # noqa: ARG002
        """Return the start-up time of this process, which had already imported the compiler."""
        return Startup(
            import_s=IMPORT_S[self._task.plan.runtime],
            build_s=self.step.load_s,
            compile_s=max(0.0, warmup.first_pass_s - warmup.steady_pass_s),
            warmup_s=_beyond_steady(warmup),
        )


def building_phase(task: TrialTask) -> str:
    """Return the phase in which the measurand is made: `compile` if its runtime compiles while it builds."""
    compiles = not task.artifact and kind_of(task.plan).compiles == "build"
    return "compile" if compiles else "build"


def measurand_of(task: TrialTask, baseline: Step, samples: Sequence[Sample]) -> Measurand:
    """Return what the task asks to measure, for these samples. It shares unchanged tensors with the baseline."""
    if not task.artifact:
        return BuiltHere(task, baseline, samples)
    assert isinstance(baseline, Call), "a training step is never loaded from an artifact"
    return Delivered(task, baseline, samples)
