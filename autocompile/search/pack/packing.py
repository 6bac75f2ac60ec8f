"""Pack one candidate for production, and measure it as it is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median

from msgspec.structs import replace

from autocompile.artifact.integrity import open_manifest, write_manifest
from autocompile.core.job import Packed
from autocompile.core.manifest import MANIFEST_VERSION, Absence, Manifest, Requirements
from autocompile.core.outcome import Failure
from autocompile.core.trial import Trial
from autocompile.core.units import format_duration
from autocompile.processor import instructions
from autocompile.runtime.catalogue import kind_of, serving_of
from autocompile.search.pack.loading import AsLoaded, measure_loaded
from autocompile.search.packages import is_loaded, is_packed, manifest_of, package_of, submit_packing, with_packing
from autocompile.search.reserve import Packing, limits_of, packing_of
from autocompile.search.run import Bench

# A packed cache was never loaded before; for all others, only the start has not been measured yet.
_PROCESSES, _ONCE_MORE = 3, 1


@dataclass(frozen=True)
class Delivered:
    """What `load` serves of a trial: the manifest in `directory`, and the trial as measured in that form.

    `untimed`: why the packed and verified artifact was not timed as loaded, or "". `stopped`: why packing ended early,
    or "".
    """

    trial: Trial
    directory: Path
    untimed: str = ""
    stopped: str = ""

    @property
    def manifest(self) -> Manifest:
        """The manifest of the packed artifact."""
        return open_manifest(self.directory)


def packed(bench: Bench, trial: Trial, trials: list[Trial]) -> Delivered | Failure:
    """Pack a trial, and measure it as loaded, as far as the budget allows; a Failure says why it cannot be loaded."""
    if bench.workload.training is not None:
        return _of_training(bench, trial, trials)
    if trial.origin == "baseline" or not bench.settings.goal.loads_artifacts:
        return configured(bench, trial)
    packing = packing_of(bench, trial, trials)
    if is_loaded(trial.plan):
        return _loaded(bench, trial, packing)
    if kind_of(trial.plan).packs_as == "cache":
        return _carried(bench, trial, packing)
    own = configured(bench, trial)
    return _started(bench, own, packing)


def not_packed(bench: Bench, trial: Trial, reason: str) -> Delivered | Failure:
    """Return what can be served if no process may be started any more, for the given reason."""
    if not is_loaded(trial.plan):
        return configured(bench, trial, reason)
    if is_packed(bench, trial.plan):
        return Delivered(trial, package_of(bench, trial.plan))
    return Failure(stage="pack", kind="timeout", message=reason)


def configured(bench: Bench, trial: Trial, reason: str = "") -> Delivered:
    """Keep the configuration alone, which each process compiles, if it compiles; `reason`: why nothing is packed."""
    serving, environment = kind_of(trial.plan).unpacked, bench.environment
    library = kind_of(trial.plan).version()
    here = Requirements(environment.torch, environment.architecture, instructions(), capability="", library=library)
    manifest = Manifest(
        manifest_version=MANIFEST_VERSION,
        label=trial.label,
        plan=trial.plan,
        device_type=bench.workload.device_type,
        identity=bench.workload.identity,
        serving=serving,
        absences=(Absence(serving_of(trial.plan), reason),) if reason and serving.start == "compile" else (),
        requirements=here,
        training=bench.workload.training,
        generation=bench.workload.generation,
        signatures=bench.workload.signatures if bench.workload.training else (),
        settings=bench.workload.settings,
    )
    directory = package_of(bench, trial.plan)
    directory.mkdir(parents=True, exist_ok=True)
    write_manifest(directory, manifest)
    return Delivered(_starting_cold(trial), directory)


def _of_training(bench: Bench, trial: Trial, trials: list[Trial]) -> Delivered:
    """Keep a training's configuration, measured as each process compiles it; add the compiler's cache if possible."""
    if trial.origin == "baseline" or kind_of(trial.plan).packs_as != "cache":
        return configured(bench, trial)
    made = _made(bench, trial, packing_of(bench, trial, trials), cache=trial.plan.key)
    cached = None if isinstance(made, str) else Delivered(trial, package_of(bench, trial.plan)).manifest
    own = configured(bench, trial)
    if cached is not None:
        write_manifest(own.directory, replace(own.manifest, files=cached.files, requirements=cached.requirements))
    return own


def _starting_cold(trial: Trial) -> Trial:
    assert trial.measurement is not None
    return replace(trial, outcome=with_packing(trial.measurement, 0.0), served_s=trial.startup_s)


def _loaded(bench: Bench, trial: Trial, packing: Packing) -> Delivered | Failure:
    """Measure the program that the trial loaded; pack it again if an earlier run made it."""
    directory = package_of(bench, trial.plan)
    if not is_packed(bench, trial.plan):
        made = _made(bench, trial, packing, cache=f"{trial.plan.key}-packed")
        if isinstance(made, str):
            return Failure(stage="pack", kind="unsupported", message=made)
    return _started(bench, Delivered(trial, directory), packing)


def _started(bench: Bench, own: Delivered, packing: Packing) -> Delivered | Failure:
    """Measure once more in a process that starts as in production; the trial has measured all but the start."""
    loaded = measure_loaded(bench, own.trial, own.directory, _ONCE_MORE, packing.loaded_s)
    if loaded.fault:
        return Failure(stage="pack", kind="error", message=loaded.fault)
    if not loaded.measured:
        return Delivered(own.trial, own.directory, stopped=loaded.stopped)
    assert own.trial.measurement is not None
    pack_s = own.trial.measurement.startup.pack_s
    finals = (*own.trial.finals, *(with_packing(one, pack_s) for one in loaded.measured))
    trial = replace(own.trial, finals=finals, served_s=_start_s(loaded))
    return Delivered(trial, own.directory, stopped=loaded.stopped)


def _carried(bench: Bench, trial: Trial, packing: Packing) -> Delivered:
    """Pack the compiler's cache and measure with it; without a cache, each process compiles."""
    directory = package_of(bench, trial.plan)
    made = _made(bench, trial, packing, cache=trial.plan.key)
    if isinstance(made, str):
        return configured(bench, trial, made)
    loaded = measure_loaded(bench, trial, directory, _PROCESSES, packing.loaded_s)
    if loaded.fault:
        bench.ledger.decide("skipped", f"packing as {serving_of(trial.plan)}", loaded.fault)
        return configured(bench, trial, loaded.fault)
    if loaded.stopped:
        bench.ledger.decide("stopped", "packing", "interrupted while the artifact was timed")
    assert trial.measurement is not None
    if not loaded.measured:  # compiling from that cache, and the compiler's import
        start_s = trial.measurement.startup.import_s + made.phases_s.get("compile", 0.0)
        said = f"packed and verified, but not timed as loaded: {loaded.untimed}"
        bench.ledger.decide("noted", f"packing as {serving_of(trial.plan)}", said)
        return Delivered(replace(trial, served_s=start_s), directory, loaded.untimed, loaded.stopped)
    first, *more = (with_packing(one, trial.measurement.startup.pack_s) for one in loaded.measured)
    as_loaded = replace(trial, outcome=first, finals=(first, *more) if more else (), served_s=_start_s(loaded))
    return Delivered(as_loaded, directory, stopped=loaded.stopped)


def _start_s(loaded: AsLoaded) -> float:
    return median(one.startup.total_s for one in loaded.measured)


def _made(bench: Bench, trial: Trial, packing: Packing, *, cache: str) -> Packed | str:
    """Pack and write the manifest; else return why nothing was packed, which the journal also records."""
    made = _pack(bench, trial, packing, cache=cache)
    subject = f"packing as {serving_of(trial.plan)}"
    if isinstance(made, str):
        bench.ledger.decide("skipped", subject, made)
        return made
    for note in made.notes:
        bench.ledger.decide("noted", subject, note)
    directory = package_of(bench, trial.plan)
    write_manifest(
        directory, manifest_of(bench.workload, trial.plan, serving_of(trial.plan), made, directory, trial.label)
    )
    return made


def _pack(bench: Bench, trial: Trial, packing: Packing, *, cache: str) -> Packed | str:
    left_s = bench.ledger.left_s()
    limit_s = packing.limit_s(left_s)
    if not limit_s:
        took = format_duration(packing.takes_s)
        return f"{format_duration(left_s)} of the budget left, too little to pack it, which takes about {took}"
    bench.listener.on_task(f"packing as {serving_of(trial.plan)}: {trial.label}")
    directory = package_of(bench, trial.plan)
    reply = submit_packing(bench, trial.plan, directory, limits_of(bench, limit_s), cache=cache).reply()
    if isinstance(reply, Packed):
        return reply
    ended = f"packing took more than the {format_duration(limit_s)} left for it"
    return ended if reply.kind == "timeout" else reply.message.splitlines()[0]
