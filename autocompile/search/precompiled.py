"""Trials in two halves: one child fills the compiler's cache, side by side with others, and a second child measures."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from autocompile.core.job import CompiledAhead, CompileTask, Limits, TrialTask
from autocompile.core.outcome import Failure, Measurement
from autocompile.core.plan import Plan
from autocompile.search.errand import Errand
from autocompile.search.packages import added
from autocompile.search.run import Bench


@dataclass(frozen=True)
class Compiling:
    """The first half of a trial of a plan that compiles in its own process: a child fills the cache."""

    bench: Bench
    plan: Plan
    errand: Errand[CompiledAhead]

    def finish(self) -> CompiledAhead | Failure:
        """Wait for its end. Raises what `PendingReply.answer` raises."""
        return self.errand.reply()

    def measure(self, task: TrialTask, limits: Limits, machine: int = 0) -> Errand[Measurement]:
        """Submit the measurement, on the machine that has the cache. Raises what `Runner.submit` raises."""
        return self.bench.submit(task, limits, Measurement, cache=self.plan.key, machine=machine)

    @staticmethod
    def completed(compiled: CompiledAhead, measured: Measurement | Failure) -> Measurement | Failure:
        """Return the outcome of both halves, as if one process had started with an empty cache."""
        measured = replace(measured, phases_s=added(compiled.phases_s, measured.phases_s))
        if isinstance(measured, Failure):
            return measured
        cold_s = max(0.0, compiled.phases_s.get("compile", 0.0) - compiled.steady_pass_s)
        return replace(measured, startup=replace(measured.startup, compile_s=cold_s))


def begin_compiling(bench: Bench, plan: Plan, limits: Limits, *, alone: bool = False, machine: int = 0) -> Compiling:
    """Submit the task that fills a plan's cache. Raises what `Runner.submit` raises."""
    task = CompileTask(bench.workload, plan)
    errand = bench.submit(task, limits, CompiledAhead, cache=plan.key, alone=alone, machine=machine)
    return Compiling(bench, plan, errand)
