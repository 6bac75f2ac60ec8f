"""What trials load: programs that one child compiled ahead, as an artifact that any number of processes measure."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from autocompile.artifact.integrity import MANIFEST, write_manifest
from autocompile.artifact.store import settle
from autocompile.core.identity import Identity
from autocompile.core.job import Limits, Packed, PackTask, TrialTask
from autocompile.core.manifest import MANIFEST_VERSION, Manifest
from autocompile.core.outcome import Failure, Measurement
from autocompile.core.plan import Plan
from autocompile.core.serving import Serving
from autocompile.core.workload import Workload
from autocompile.runtime.catalogue import kind_of, serving_of
from autocompile.search.errand import Errand
from autocompile.search.run import Bench


def is_loaded(plan: Plan) -> bool:
    """Whether a trial of this plan measures what was packed of it."""
    return kind_of(plan).packs_as == "load"


def package_of(bench: Bench, plan: Plan) -> Path:
    """Where what was packed of this plan lies, if it was."""
    return bench.packages / plan.key


def is_packed(bench: Bench, plan: Plan) -> bool:
    """Whether this run has packed it."""
    return (package_of(bench, plan) / MANIFEST).exists()


def submit_packing(bench: Bench, plan: Plan, directory: Path, limits: Limits, *, cache: str) -> Errand[Packed]:
    """Have `plan` packed into `directory`, in place of what lies there. Raises what `Runner.submit` raises."""
    serving = serving_of(plan)
    shutil.rmtree(directory / serving.name, ignore_errors=True)
    task = PackTask(
        workload=bench.workload,
        plan=plan,
        serving=serving,
        reference=str(bench.reference),
        acceptance=bench.acceptance(plan),
        directory=str(directory / serving.name),
    )
    return bench.submit(task, limits, Packed, cache=cache)


def manifest_of(
    workload: Workload, plan: Plan, serving: Serving, packed: Packed, directory: Path, label: str = ""
) -> Manifest:
    """The manifest of what a child has just packed into `directory`, whose files it names by what they hold."""
    name, files = settle(directory, serving.name)
    return Manifest(
        manifest_version=MANIFEST_VERSION,
        label=label,
        plan=plan,
        device_type=workload.device_type,
        identity=identity_of_packed(workload.identity, packed),
        serving=serving,
        absences=(),
        requirements=packed.requirements,
        programs=tuple(replace(program, directory=name) for program in packed.programs),
        files=files,
        weights=packed.weights,
        weight_samples=packed.weight_samples,
        generation=workload.generation,
        settings=workload.settings,
    )


def identity_of_packed(identity: Identity, packed: Packed) -> Identity:
    """The model's, with the attributes that matter to what was packed: those that its programs hold, if it has any."""
    return identity if packed.attributes is None else replace(identity, attributes=packed.attributes)


def drop(bench: Bench, plan: Plan) -> None:
    """What was packed of this plan is not needed any more."""
    shutil.rmtree(package_of(bench, plan), ignore_errors=True)


@dataclass(frozen=True)
class PackedFirst:
    """A trial of a plan that is loaded: it is packed by one child, and measured by the next.

    `task` is what that one is asked; together they are to keep to `limits`.
    """

    bench: Bench
    label: str
    task: TrialTask
    limits: Limits
    packing: Errand[Packed]

    def reply(self) -> Measurement | Failure:
        """Wait for the end of both. Raises what `PendingReply.answer` raises."""
        packed = self.packing.reply()
        if isinstance(packed, Failure):
            return packed
        plan = self.task.plan
        directory = package_of(self.bench, plan)
        write_manifest(
            directory, manifest_of(self.bench.workload, plan, serving_of(plan), packed, directory, self.label)
        )
        for note in packed.notes:
            self.bench.ledger.decide("noted", self.label, note)
        left_s = self.limits.total_s - sum(packed.phases_s.values())
        limits = replace(self.limits, total_s=max(1.0, left_s), compile_s=0.0)
        measured = self.bench.reply_to(self.task, limits, Measurement, cache=f"{plan.key}-loaded")
        phases_s = _added(packed.phases_s, measured.phases_s)
        if isinstance(measured, Failure):
            drop(self.bench, plan)
            return replace(measured, phases_s=phases_s)
        return with_packing(replace(measured, phases_s=phases_s), packed.phases_s.get("compile", 0.0))


def submit_trial(bench: Bench, label: str, task: TrialTask, limits: Limits) -> Errand[Measurement] | PackedFirst:
    """Have a plan measured: as it is built, or, if it is one that is loaded, as that.

    Raises what `Runner.submit` raises.
    """
    if not is_loaded(task.plan):
        return bench.submit(task, limits, Measurement, cache=task.plan.key)
    directory = package_of(bench, task.plan)
    packing = submit_packing(bench, task.plan, directory, limits, cache=task.plan.key)
    return PackedFirst(bench, label, replace(task, artifact=str(directory)), limits, packing)


def submit_again(bench: Bench, label: str, task: TrialTask, limits: Limits) -> Errand[Measurement] | PackedFirst:
    """The same once more: what is packed already is only loaded, what is compiled is compiled from its cache."""
    if not is_packed(bench, task.plan):
        return submit_trial(bench, label, task, limits)
    task = replace(task, artifact=str(package_of(bench, task.plan)))
    return bench.submit(task, limits, Measurement, cache=f"{task.plan.key}-loaded")


def with_packing(measured: Measurement, pack_s: float) -> Measurement:
    """With what it took to compile what is loaded."""
    return replace(measured, startup=replace(measured.startup, pack_s=pack_s))


def _added(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    return {name: first.get(name, 0.0) + second.get(name, 0.0) for name in (*first, *second)}
