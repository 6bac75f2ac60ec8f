"""Floor 5: sets up a run: its working directory, its runner, and what it keeps. No torch.

A model in memory and a script differ only in where the workload comes from: their `Source`.
"""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from autocompile.artifact.directory import (
    STUDY,
    check_output,
    check_same_workload,
    check_workload,
    read_document,
    remove_prompts,
    working_directory,
    write_recommendation,
)
from autocompile.artifact.exported import check_export_directory, put_export
from autocompile.artifact.store import deliver
from autocompile.core.document import Document, WorkloadEntry
from autocompile.core.environment import Environment
from autocompile.core.errors import InvalidWorkload, NotExportable
from autocompile.core.export import Export
from autocompile.core.job import CaptureTask, Limits, Watching
from autocompile.core.notices import of_calls, of_disturbance, of_load, of_refused, of_workload
from autocompile.core.progress import Listener
from autocompile.core.protocol import SCRIPT_LOG
from autocompile.core.runner import Runner
from autocompile.core.workload import Workload
from autocompile.host import current_load, environment, user_cache_directory
from autocompile.interrupts import uninterrupted
from autocompile.report.export import readme_of
from autocompile.report.html import as_page
from autocompile.runner.cluster.opening import reached
from autocompile.runner.local import LocalRunner
from autocompile.runner.showing import shown_live
from autocompile.runner.workers import Workers
from autocompile.search.errand import reply_to
from autocompile.search.export import export as write_export
from autocompile.search.export import usable_format
from autocompile.search.ledger import Ledger
from autocompile.search.prompts import Tuned, keep_time_for_prompts, named, with_prompts
from autocompile.search.recheck import Recheck, recheck
from autocompile.search.run import Bench, Settings
from autocompile.search.session import run_study
from autocompile.search.study.opening import sqlite_url
from autocompile.workload.capture.place import ScriptPlace
from autocompile.workload.function.naming import function_name, placed

Source = Callable[[LocalRunner, Path, float], Workload]


@dataclass(frozen=True)
class Request:
    """A run: its settings, its budget in seconds, and its output directory, if it has one.

    `metric`: writes the goal's metric into a directory, where child processes can read it, and returns its path.
    `keep`: where the artifact goes if there is no output directory. `began`: when the budget started, on
    `time.monotonic`'s clock; None means when the run starts. `workers`: how many candidates are compiled in parallel,
    and on which machines they are measured.
    """

    settings: Settings
    budget_s: float
    output: str | None
    metric: Callable[[Path], str] | None = None
    keep: str | None = None
    began: float | None = None
    workers: Workers = field(default_factory=Workers)


def tune(source: Source, request: Request, listener: Listener) -> Document:
    """Tune the workload of `source`, and keep the document and the study in the output directory, if there is one.

    A run that was killed resumes from that directory. Raises UsageError for faults that the caller can fix, and
    KeyboardInterrupt if the run was stopped before the baseline was measured.
    """
    output = Path(request.output) if request.output else None
    if output:
        check_output(output)
    with _bench(source, request, listener, output) as bench:
        if output:
            check_same_workload(output, bench.workload)
            _keep_log(bench.workload, output)
        bench.ledger.notice(of_calls(bench.workload, request.settings.goal, bench.settings.goal))
        keep_time_for_prompts(bench)
        document = run_study(bench)
        place = output or (Path(request.keep) if request.keep else None)
        _write(document, bench, output, place)
        document, prompts = with_prompts(bench, document)
        with uninterrupted():
            if prompts and place:
                _write_prompts(prompts, place)
                document = named(bench, document, prompts)
            if document.prompts:
                _write(document, bench, output, place)
            if place:
                remove_prompts(place, but=prompts.directory if prompts else "")
    return document


def _write(document: Document, bench: Bench, output: Path | None, place: Path | None) -> None:
    """Write the recommendation to the output directory. If there is none, write only the artifact, to `place`."""
    if output:
        write_recommendation(output, document, bench.artifact, as_page(document))
    elif place:
        deliver(bench.artifact, place)


def _write_prompts(prompts: Tuned, place: Path) -> None:
    """Write the recommendation for prompts into a directory within `place`, that of the whole recommendation."""
    write_recommendation(place / prompts.directory, prompts.document, prompts.artifact, as_page(prompts.document))


def _keep_log(workload: Workload, output: Path) -> None:
    """Copy what the script printed while it was watched, if it was watched, to the output directory."""
    log = Path(workload.directory) / SCRIPT_LOG
    if log.exists():
        shutil.copyfile(log, output / SCRIPT_LOG)


def verify(directory: Path, source: Source, request: Request, listener: Listener) -> Recheck:
    """Measure the recommendation in `directory` again on this host, with the workload of `source`.

    Raises InvalidRecommendation if there is none, or if it is for another workload.
    """
    document = read_document(directory)
    with _bench(source, request, listener, None) as bench:
        check_workload(directory, document, bench.workload)
        return recheck(bench, document, directory)


def export(
    document: Document, source: Source, request: Request, listener: Listener, *, to: str, directory: Path, where: Path
) -> Export:
    """Write the tuned model as a file of the format `to` into `directory`.

    `document` is the recommendation in the directory `where`, and `source` gives its workload. A file that cannot be
    verified is not written to `directory`. Raises InvalidValue if the format is not available here, OutputConflict if
    `directory` contains anything else, NotExportable if the model cannot be written in that format, and
    InvalidRecommendation if the recommendation is for another workload.
    """
    if document.workload.training:
        raise NotExportable(
            "training was tuned, and only a model can be exported", remedy="tune the model without training"
        )
    usable_format(to)
    check_export_directory(directory)
    with _bench(source, request, listener, None) as bench:
        check_workload(where, document, bench.workload)
        made = bench.artifact.with_name("export")
        found = write_export(bench, document, to, made)
        put_export(made, directory, found, readme_of(found))
    return found


@contextmanager
def _bench(source: Source, request: Request, listener: Listener, output: Path | None) -> Iterator[Bench]:
    """Yield what a run works with: a working directory, a runner in it, and the workload."""
    started = time.monotonic() if request.began is None else request.began
    machine = environment()
    ledger = Ledger(request.budget_s, listener, started=started)
    ledger.notice(of_load(current_load().busy_share))
    with (
        working_directory(output) as work,
        reached(request.workers) as cluster,
        LocalRunner(
            work / "jobs",
            _toolchain_cache(machine),
            workers=max(request.workers.here, cluster.joined.here if cluster else 1),
            on_phase=listener.on_phase,
            on_disturbance=lambda: ledger.notice(of_disturbance()),
        ) as home,
        ExitStack() as machines,
    ):
        workload = source(home, work / "workload", request.budget_s)
        listener.on_workload(workload)
        settings = _settled(request.settings, output, workload)
        ledger.notice(of_workload(workload))
        home.preload(workload)
        runner: Runner = home
        if cluster:
            runner = machines.enter_context(cluster.runner(home, workload, partial(_tell_refused, ledger)))
        (work / "artifact").mkdir()
        (work / "reference").mkdir()
        yield Bench(
            workload=workload,
            environment=machine,
            runner=runner,
            ledger=ledger,
            listener=listener,
            settings=settings,
            reference=work / "reference" / "reference.pt",
            metric=request.metric(work) if request.metric else "",
            artifact=work / "artifact",
        )


def _tell_refused(ledger: Ledger, machine: str, reason: str) -> None:
    """Report that a machine does not take part in this run."""
    ledger.decide("narrowed", machine, f"this machine is not used: {reason}")
    ledger.notice(of_refused(machine, reason))


def from_script(
    script: ScriptPlace,
    arguments: Sequence[str] = (),
    *,
    tries_loaders: bool = False,
    watching: Watching | None = None,
    shows: bool = False,
) -> Source:
    """Return the source of a script's workload. The script runs in a child process, with these arguments.

    If the script does not define a workload, it is watched to find one. `watching`: how long, and for what.
    `tries_loaders`: whether to time a DataLoader with other settings, for a profile. `shows`: whether to copy the
    script's output to standard error while it is watched.

    Raises InvalidWorkload if there is no such script, or if it fails.
    """
    path = script.path
    _check_syntax(path)
    seen = watching or Watching()
    if seen.function:
        name = placed(function_name(seen.function), path, script.package)
        seen = msgspec.structs.replace(seen, function=str(name))

    def source(runner: LocalRunner, directory: Path, budget_s: float) -> Workload:
        with shown_live() if shows else nullcontext("") as pipe:
            task = CaptureTask(
                str(path.resolve()), str(directory), tries_loaders, tuple(arguments), seen, script.name, pipe
            )
            reply = reply_to(runner, task, Limits(total_s=budget_s), Workload, cache="capture")
        if isinstance(reply, Workload):
            return reply
        if reply.kind == "timeout":
            raise InvalidWorkload(
                f"took longer to define its workload than the whole budget of {budget_s:.0f} s",
                where=str(path),
                remedy="give a larger budget",
            )
        if reply.kind == "invalid":
            raise InvalidWorkload(reply.message)  # which says where
        raise InvalidWorkload(
            reply.message, where=str(path), remedy=f"run `python {shlex.quote(str(path))}` to see the whole error"
        )

    return source


def watched_before(workload: WorkloadEntry) -> Watching:
    """Return what to watch in the script in order to get the workload that was tuned."""
    return Watching(function=workload.script.function) if workload.script else Watching()


def _check_syntax(script: Path) -> None:
    """Raise InvalidWorkload if the script is not valid Python, before a process is started for it."""
    try:
        compile(script.read_bytes(), str(script), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as fault:
        line = f", line {fault.lineno}" if isinstance(fault, SyntaxError) and fault.lineno else ""
        said = fault.msg if isinstance(fault, SyntaxError) else str(fault)
        raise InvalidWorkload(f"is not valid Python{line}: {said}", where=str(script)) from fault


def _settled(settings: Settings, output: Path | None, workload: Workload) -> Settings:
    """Return the settings with the storage of the output directory, and with the goal adapted to the workload."""
    goal = settings.goal.for_training(workload.training.batch) if workload.training else settings.goal
    goal = goal.for_script(workload.script) if workload.script else goal
    storage = settings.storage or (sqlite_url(output.resolve() / STUDY) if output else None)
    return Settings(goal, settings.strategy, settings.seed, storage)


def _toolchain_cache(machine: Environment) -> Path:
    return user_cache_directory() / "toolchain" / machine.fingerprint
