"""The main program of a child process: it reads one job as JSON, runs it, and writes the reply as JSON."""

from __future__ import annotations

import os
import shutil
import sys
import traceback
from pathlib import Path

import msgspec

from autocompile.runtime.preparing import keep_in  # isort: skip  first, as it times its imports
from autocompile.core.job import (
    BatchTask,
    CaptureTask,
    CompileTask,
    ExportTask,
    FreshTask,
    Job,
    LoaderTask,
    PackTask,
    ProfileTask,
    Reply,
    ToolchainTask,
    TrialTask,
)
from autocompile.core.protocol import JOB_FILE, LOG_FILE, REPLY_FILE, SCRIPT_LOG
from autocompile.core.serde import from_json, to_json, write_atomically
from autocompile.core.workload import Workload
from autocompile.heap import settle_heap
from autocompile.trial.ahead import compile_ahead
from autocompile.trial.batches import probe_batches
from autocompile.trial.faults import failure_of
from autocompile.trial.loaders import try_loaders
from autocompile.trial.measure import measure
from autocompile.trial.memory import limit_memory
from autocompile.trial.pack.exporting import export
from autocompile.trial.pack.loaded import start_afresh
from autocompile.trial.pack.packing import pack
from autocompile.trial.phases import Phases
from autocompile.trial.profile.profiling import take_profile
from autocompile.trial.toolchain import check_toolchain
from autocompile.workload.capture.defining import defines_workload
from autocompile.workload.capture.script import workload_from_script
from autocompile.workload.generating.asked import generation_by
from autocompile.workload.generating.spooling import spool_generation
from autocompile.workload.spool import spool
from autocompile.workload.watching.output import limited_output
from autocompile.workload.watching.script import watched
from autocompile.workload.watching.spooling import spool_seen


def run_job(directory: Path) -> None:
    """Run the job in `directory`, and write its reply there. Never raises."""
    phases = Phases()
    try:
        job = from_json((directory / JOB_FILE).read_bytes(), Job)
        keep_in(job.cache_directory, job.headers_directory)
        settle_heap()
        limit_memory(job.limits.memory_bytes)
        phases.limit(job.limits.total_s)
        reply: Reply = msgspec.structs.replace(_do(job, phases), phases_s=dict(phases.seconds))
    except BaseException as fault:  # a record crosses the process boundary, never an exception
        traceback.print_exc()
        reply = msgspec.structs.replace(failure_of(fault, phases), phases_s=dict(phases.seconds))
    sys.stdout.flush()
    sys.stderr.flush()
    write_atomically(directory / REPLY_FILE, to_json(reply))


def _do(job: Job, phases: Phases) -> Reply:
    task = job.task
    if isinstance(task, CaptureTask):
        with phases("capture"):
            return _captured(task, job)
    if isinstance(task, ToolchainTask):
        return check_toolchain(task.device, phases)
    sys.path[:] = task.workload.search_path
    if isinstance(task, ProfileTask):
        return take_profile(task, phases)
    if isinstance(task, BatchTask | LoaderTask):
        return probe_batches(task, phases) if isinstance(task, BatchTask) else try_loaders(task, phases)
    if isinstance(task, CompileTask | PackTask | ExportTask):
        return _made(task, phases)
    assert isinstance(task, TrialTask | FreshTask)
    return measure(task, phases) if isinstance(task, TrialTask) else start_afresh(task, phases)


def _made(task: CompileTask | PackTask | ExportTask, phases: Phases) -> Reply:
    if isinstance(task, CompileTask):
        return compile_ahead(task, phases)
    return pack(task, phases) if isinstance(task, PackTask) else export(task, phases)


def _captured(task: CaptureTask, job: Job) -> Workload:
    script, directory = Path(task.script), Path(task.directory)
    asked = task.watching.module or task.watching.function or task.name
    if not asked and defines_workload(script):
        model, inputs, training = workload_from_script(script, task.arguments)
        generation = None if training else generation_by(model, inputs)
        if generation is not None:
            return spool_generation(generation, directory, name=script.stem)
        tries = task.tries_loaders
        return spool(model, inputs, directory, name=script.stem, tries_loaders=tries, training=training)
    own = [directory, *map(Path, (job.directory, job.cache_directory, job.headers_directory))]
    with limited_output(shows=task.shows):
        seen = watched(script, task.arguments, task.watching, name=task.name, own=own)
    log = Path(job.directory) / LOG_FILE
    if log.exists():
        directory.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(log, directory / SCRIPT_LOG)
    return spool_seen(seen, directory, name=script.stem, tries_loaders=task.tries_loaders)


if __name__ == "__main__":
    run_job(Path(sys.argv[1]))
    os._exit(0)
