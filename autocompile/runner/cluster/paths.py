"""The paths in a task, which differ from machine to machine."""

from __future__ import annotations

import sys
from _compat_pickle import IMPORT_MAPPING
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from msgspec.structs import replace

from autocompile.core.job import CompileTask, PackTask, Task, TrialTask
from autocompile.core.workload import Workload

# The tasks that another machine may run. All other tasks of a run are run at home.
Tried = CompileTask | PackTask | TrialTask


def read_by(task: Tried) -> tuple[str, ...]:
    """Return the paths that a task reads."""
    paths = [task.workload.directory]
    if isinstance(task, PackTask | TrialTask):
        paths += [str(Path(task.reference).parent), task.acceptance.metric]
    if isinstance(task, TrialTask):
        paths.append(task.artifact)
    return tuple(path for path in paths if path)


def moved(task: Tried, to: Mapping[str, str], made: Path) -> Task:
    """Return the task with its paths replaced as in `to`, and `made` as the directory for its results."""
    workload = moved_workload(task.workload, to)
    if isinstance(task, CompileTask):
        return replace(task, workload=workload)
    metric = task.acceptance.metric
    acceptance = replace(task.acceptance, metric=to.get(metric, metric))
    lies_in, name = Path(task.reference).parent, Path(task.reference).name
    reference = str(Path(to.get(str(lies_in), str(lies_in)), name))
    if isinstance(task, PackTask):
        return replace(task, workload=workload, acceptance=acceptance, reference=reference, directory=str(made))
    artifact = to.get(task.artifact, task.artifact)
    return replace(task, workload=workload, acceptance=acceptance, reference=reference, artifact=artifact)


def moved_workload(workload: Workload, to: Mapping[str, str]) -> Workload:
    """Return the workload with its directory replaced as in `to`, and a search path that is valid on this machine.

    The search path lists those of the user's paths that exist here, then the paths of this process.
    """
    theirs = [path for path in workload.search_path if path and Path(path).exists()]
    search_path = tuple(dict.fromkeys([*theirs, *sys.path]))
    return replace(workload, directory=to.get(workload.directory, workload.directory), search_path=search_path)


def missing_module(workload: Workload) -> str:
    """Return a module that the workload imports but that cannot be found here, or "". Imports none of them."""
    before = list(sys.path)
    sys.path[:] = workload.search_path
    try:
        return next((name for name in workload.modules if not _is_found(name.partition(".")[0])), "")
    finally:
        sys.path[:] = before


def _is_found(name: str) -> bool:
    try:
        return name == "__main__" or name in IMPORT_MAPPING or name in sys.modules or find_spec(name) is not None
    except (ImportError, ValueError):
        return False
