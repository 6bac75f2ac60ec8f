"""Packages for trials: programs compiled ahead of time by one child, which any number of processes measure."""

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
    """Whether a trial of this plan measures a packed program that it loads."""
    return kind_of(plan).packs_as == "load"


def package_of(bench: Bench, plan: Plan) -> Path:
    """Return the directory for the packed program of this plan."""
    return bench.packages / plan.key


def is_packed(bench: Bench, plan: Plan) -> bool:
    """Whether this run has packed the plan."""
    return (package_of(bench, plan) / MANIFEST).exists()


def submit_packing(
    bench: Bench,
    plan: Plan,
    directory: Path,
    limits: Limits,
    *,
    cache: str,
    alone: bool = False,
    machine: int = 0,
) -> Errand[Packed]:
    """Submit the packing of `plan` into `directory`, replacing old files. Raises what `Runner.submit` raises."""
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
    return bench.submit(task, limits, Packed, cache=cache, alone=alone, machine=machine)


def manifest_of(
    workload: Workload, plan: Plan, serving: Serving, packed: Packed, directory: Path, label: str = ""
) -> Manifest:
    """Return the manifest of the files just packed into `directory`, which are renamed by their content."""
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
    """Return the model's identity, reduced to the attributes that the packed programs depend on, if they list them."""
    if packed.attributes is None:
        return identity
    return replace(identity, attributes=packed.attributes, state=packed.state)


def drop(bench: Bench, plan: Plan) -> None:
    """Remove the packed program of this plan."""
    shutil.rmtree(package_of(bench, plan), ignore_errors=True)


@dataclass(frozen=True)
class Packing:
    """The first half of a trial of a plan that is loaded: one child packs it, and the next one measures the result."""

    bench: Bench
    label: str
    plan: Plan
    errand: Errand[Packed]

    def finish(self) -> Packed | Failure:
        """Wait for its end, and write the manifest. Raises what `PendingReply.answer` raises."""
        packed = self.errand.reply()
        if isinstance(packed, Packed):
            plan, directory = self.plan, package_of(self.bench, self.plan)
            manifest = manifest_of(self.bench.workload, plan, serving_of(plan), packed, directory, self.label)
            write_manifest(directory, manifest)
            for note in packed.notes:
                self.bench.ledger.decide("noted", self.label, note)
        return packed

    def measure(self, task: TrialTask, limits: Limits, machine: int = 0) -> Errand[Measurement]:
        """Submit the measurement of the packed program, on any machine. Raises what `Runner.submit` raises."""
        task = replace(task, artifact=str(package_of(self.bench, self.plan)))
        return self.bench.submit(task, limits, Measurement, cache=f"{self.plan.key}-loaded", machine=machine)

    def completed(self, packed: Packed, measured: Measurement | Failure) -> Measurement | Failure:
        """Return the outcome of both halves."""
        phases_s = added(packed.phases_s, measured.phases_s)
        if isinstance(measured, Failure):
            drop(self.bench, self.plan)
            if measured.kind == "timeout":  # both halves share one limit
                took = f"{sum(phases_s.values()):.1f} s, packing included"
                measured = replace(measured, message=f"killed after {took}, while in phase {measured.stage}")
            return replace(measured, phases_s=phases_s)
        return with_packing(replace(measured, phases_s=phases_s), packed.phases_s.get("compile", 0.0))


def begin_packing(
    bench: Bench, label: str, plan: Plan, limits: Limits, *, alone: bool = False, machine: int = 0
) -> Packing:
    """Submit the packing of a plan for its trial. Raises what `Runner.submit` raises."""
    directory = package_of(bench, plan)
    errand = submit_packing(bench, plan, directory, limits, cache=plan.key, alone=alone, machine=machine)
    return Packing(bench, label, plan, errand)


@dataclass(frozen=True)
class PackedFirst:
    """A trial of a plan that is loaded, with one half after the other.

    `task` is the task of the second half; both halves together keep to `limits`.
    """

    packing: Packing
    task: TrialTask
    limits: Limits

    def reply(self) -> Measurement | Failure:
        """Wait for the end of both halves. Raises what `PendingReply.answer` raises."""
        packed = self.packing.finish()
        if isinstance(packed, Failure):
            return packed
        left_s = self.limits.total_s - sum(packed.phases_s.values())
        limits = replace(self.limits, total_s=max(1.0, left_s), compile_s=0.0)
        return self.packing.completed(packed, self.packing.measure(self.task, limits).reply())


def submit_trial(bench: Bench, label: str, task: TrialTask, limits: Limits) -> Errand[Measurement] | PackedFirst:
    """Submit the measurement of a plan: as loaded from a package if its runtime loads programs, else as built.

    Raises what `Runner.submit` raises.
    """
    if not is_loaded(task.plan):
        return bench.submit(task, limits, Measurement, cache=task.plan.key)
    return PackedFirst(begin_packing(bench, label, task.plan, limits), task, limits)


def submit_again(bench: Bench, label: str, task: TrialTask, limits: Limits) -> Errand[Measurement] | PackedFirst:
    """Submit the measurement again: a packed program is only loaded, others compile from their cache."""
    if not is_packed(bench, task.plan):
        return submit_trial(bench, label, task, limits)
    task = replace(task, artifact=str(package_of(bench, task.plan)))
    return bench.submit(task, limits, Measurement, cache=f"{task.plan.key}-loaded")


def with_packing(measured: Measurement, pack_s: float) -> Measurement:
    """Return the measurement with the time to compile what is loaded."""
    return replace(measured, startup=replace(measured.startup, pack_s=pack_s))


def added(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    """Add the seconds of two children by phase."""
    return {name: first.get(name, 0.0) + second.get(name, 0.0) for name in (*first, *second)}
