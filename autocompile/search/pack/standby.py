"""The standby: a second program for changed weights and other sizes, where the winner's program takes neither."""

from __future__ import annotations

from typing import Literal

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

# As the expected time is a guess, packing starts if at least 75% of it is left.
_AT_LEAST = 0.75


def standby_plan(plan: Plan) -> Plan | None:
    """Return the plan for what `plan` does not take: other weights, if it holds its own, and other sizes.

    None if `plan` takes both itself.
    """
    return on_live_weights(plan) if not_taken(plan) else None


def not_taken(plan: Plan) -> tuple[Literal["weights", "sizes"], ...]:
    """Return which changes programs of this plan do not take: changed weights, other sizes of the inputs."""
    own = kind_of(plan)
    weights: tuple[Literal["weights"], ...] = ("weights",) if own.holds_weights(plan) else ()
    return (*weights, "sizes") if own.packs_as == "load" and plan.sizes else weights


def _for_what(plan: Plan) -> str:
    return "for " + " and ".join({"weights": "changed weights", "sizes": "other sizes"}[one] for one in not_taken(plan))


def standby(bench: Bench, trial: Trial, trials: list[Trial], *, may_run: bool) -> Standby | Absence | None:
    """Pack the standby into `bench.artifact`, or return why there is none; None if none is needed or possible.

    If a trial has packed the same plan, its program is used.
    """
    plan = standby_plan(trial.plan)
    if plan is None:
        return None
    problem = "" if is_packed(bench, plan) else _pack(bench, plan, trial, trials, may_run=may_run)
    if problem:
        bench.ledger.decide("skipped", f"packing {_for_what(trial.plan)} as {serving_of(plan)}", problem)
        return Absence(serving_of(plan), f"{_for_what(trial.plan)}: {problem}")
    manifest = open_manifest(package_of(bench, plan))
    add(package_of(bench, plan), bench.artifact, manifest)
    return Standby(plan, manifest.identity, manifest.programs, manifest.requirements, manifest.files)


def _pack(bench: Bench, plan: Plan, trial: Trial, trials: list[Trial], *, may_run: bool) -> str:
    """Pack the plan; return why it could not be packed, or ""."""
    left_s = bench.ledger.left_s()
    takes_s = kind_of(plan).packing_s(compiled_of(bench, trial, trials))
    if not may_run:
        return "the run was stopped"
    if left_s < _AT_LEAST * takes_s:
        took = format_duration(takes_s)
        return f"{format_duration(left_s)} of the budget left, too little to pack it, which takes about {took}"
    bench.listener.on_task(f"packing {_for_what(trial.plan)} as {serving_of(plan)}")
    directory = package_of(bench, plan)
    reply = submit_packing(bench, plan, directory, limits_of(bench, left_s), cache=f"{plan.key}-packed").reply()
    if isinstance(reply, Failure):
        return reply.message.splitlines()[0]
    write_manifest(directory, manifest_of(bench.workload, plan, serving_of(plan), reply, directory))
    return ""
