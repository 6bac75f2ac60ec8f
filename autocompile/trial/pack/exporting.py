"""Export the model to a file, run it with the file format's library as the example does, and compare the results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

from autocompile.core.export import Verified
from autocompile.core.job import Exported, ExportTask
from autocompile.core.outcome import Failure
from autocompile.runtime.base import NotPackable
from autocompile.runtime.building import runtime
from autocompile.runtime.catalogue import format_named
from autocompile.runtime.example import FILE
from autocompile.runtime.writer import Written
from autocompile.trial.check.compare import severity
from autocompile.trial.pack.programs import Programs
from autocompile.trial.phases import Phases
from autocompile.workload.samples import device_of
from autocompile.workload.spool import unspool

_STAGE = "pack"


def export(task: ExportTask, phases: Phases) -> Exported | Failure:
    """Write the file and compare its results. Returns a Failure of kind `unsupported` if it cannot be exported."""
    with phases("load"):
        model, samples = unspool(task.workload, batch=task.plan.batch)
    if task.plan.threads:
        torch.set_num_threads(task.plan.threads)
    _kind, form = format_named(task.format)
    runtime(task.plan.runtime)  # raises with what to install, if it is missing
    try:
        written = Written(form, task.workload.name, device_of(samples[0]))
        programs = Programs(task, model, written, phases, most=1, name=form.file)
        (program,) = programs.made(samples)
        with phases("verify"):
            _run_example(Path(task.directory))
    except NotPackable as fault:
        return Failure(stage=_STAGE, kind="unsupported", message=str(fault), cause=fault.cause)
    worst = max(programs.compared, key=severity)
    verified = Verified(worst.reference, len(programs.compared), worst.error, worst.limit, worst.output)
    return Exported(program, verified)


def _run_example(directory: Path) -> None:
    """Run the example in a separate process, independent of this one. Raises NotPackable if it fails."""
    done = subprocess.run([sys.executable, FILE], cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise NotPackable(f"{FILE} fails: {said[-1] if said else f'status {done.returncode}'}")
