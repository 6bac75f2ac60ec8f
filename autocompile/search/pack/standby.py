"""What serves changed weights, beside programs that hold their own: the same, compiled to run on the model's."""

from __future__ import annotations

from autocompile.artifact.integrity import open_manifest, write_manifest
from autocompile.artifact.store import add
from autocompile.core.manifest import Absence, Standby
from autocompile.core.outcome import Failure
from autocompile.core.plan import Plan
from autocompile.core.trial import Trial
from autocompile.core.units import format_duration
from autocompile.runtime.catalogue import kind_of, on_live_weights, serving_of
from autocompile.search.packages import is_packed, manifest_of, package_of, submit_packing
from autocompile.search.reserve import compiled_of, limits_of
from autocompile.search.run import Bench

# The figures that say how long it takes are guesses; it is started with 75% of that left.
_AT_LEAST = 0.75


def standby_plan(plan: Plan) -> Plan | None:
    """The plan that follows the model's weights where `plan` holds its own; None if it follows them itself."""
    return on_live_weights(plan) if kind_of(plan).holds_weights(plan) else None


def standby(bench: Bench, trial: Trial, trials: list[Trial], *, may_run: bool) -> Standby | Absence | None:
    """Packed into `bench.artifact`; or why there is none; None where no weights are held, or nothing follows them.

    Where a trial has packed the same, that is taken.
    """
    plan = standby_plan(trial.plan)
    if plan is None:
        return None
    problem = "" if is_packed(bench, plan) else _pack(bench, plan, trial, trials, may_run=may_run)
    if problem:
        bench.ledger.decide("skipped", f"packing for changed weights as {serving_of(plan)}", problem)
        return Absence(serving_of(plan), f"for changed weights: {problem}")
    manifest = open_manifest(package_of(bench, plan))
    add(package_of(bench, plan), bench.artifact, manifest)
    return Standby(plan, manifest.identity, manifest.programs, manifest.requirements, manifest.files)


def _pack(bench: Bench, plan: Plan, trial: Trial, trials: list[Trial], *, may_run: bool) -> str:
    """Why it could not be packed, or ""."""
    left_s = bench.ledger.left_s()
    takes_s = kind_of(plan).packing_s(compiled_of(bench, trial, trials))
    if not may_run:
        return "the run was stopped"
    if left_s < _AT_LEAST * takes_s:
        took = format_duration(takes_s)
        return f"{format_duration(left_s)} of the budget left, too little to pack it, which takes some {took}"
    bench.listener.on_task(f"packing for changed weights as {serving_of(plan)}")
    directory = package_of(bench, plan)
    reply = submit_packing(bench, plan, directory, limits_of(bench, left_s), cache=f"{plan.key}-packed").reply()
    if isinstance(reply, Failure):
        return reply.message.splitlines()[0]
    write_manifest(directory, manifest_of(bench.workload, plan, serving_of(plan), reply, directory))
    return ""
