"""Export a recommendation's model as a file: choose its plan, write it, and report the result."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from autocompile.artifact.exported import README, RECORD
from autocompile.core.document import Document
from autocompile.core.errors import InvalidValue, NotExportable
from autocompile.core.export import EXPORT_VERSION, Export, Interface
from autocompile.core.job import Exported, ExportTask, Limits
from autocompile.core.outcome import Failure
from autocompile.core.plan import Plan
from autocompile.core.serde import from_plain
from autocompile.runtime.catalogue import format_named, formats, problem_here
from autocompile.runtime.format import Format
from autocompile.runtime.kind import Kind
from autocompile.search.run import Bench
from autocompile.search.session import prepare_toolchain, take_profile
from autocompile.space.surroundings import Surroundings, surroundings_of


def usable_format(name: str) -> tuple[Kind, Format]:
    """Return the format of this name, and its runtime. Raises InvalidValue if either it or its library is missing."""
    kind, form = format_named(name)
    missing = form.missing()
    if missing:
        raise InvalidValue(f"{name} needs {missing}, which is not installed", where="format", remedy=kind.install)
    return kind, form


def export(bench: Bench, document: Document, name: str, directory: Path) -> Export:
    """Write the model into `directory` and compare it with the reference. On failure, the caller removes the directory.

    Raises InvalidValue if the format is not possible for this workload, NotExportable if the model cannot be converted,
    its file is wrong, or time ran out, UsageError if the model fails.
    """
    kind, form = usable_format(name)
    toolchain = prepare_toolchain(bench)
    around = surroundings_of(bench.workload, bench.environment, take_profile(bench), toolchain)
    problem = problem_here(kind, around)
    if problem:
        raise InvalidValue(f"{name} cannot be written here: {problem}", where="format")
    label, plan = plan_of_file(document, kind, around)
    bench.listener.on_stage("export")
    bench.listener.on_task(f"export as {name}: {label}")
    task = ExportTask(
        workload=bench.workload,
        plan=plan,
        format=name,
        reference=str(bench.reference),
        acceptance=bench.acceptance(plan),
        directory=str(directory),
    )
    limits = Limits(total_s=max(1.0, bench.ledger.left_s()), memory_bytes=bench.memory_limit())
    reply = bench.reply_to(task, limits, Exported, cache="export")
    if isinstance(reply, Failure):
        raise _refusal(bench, reply, name)
    return Export(
        export_version=EXPORT_VERSION,
        format=name,
        meaning=form.meaning,
        file=form.file,
        files=(*reply.program.files, README, RECORD),
        workload=bench.workload.name,
        fingerprint=bench.workload.fingerprint,
        device_type=bench.workload.device_type,
        label=label,
        plan=plan,
        interface=from_plain(reply.program.own, Interface),
        axes=reply.program.axes,
        verified=reply.verified,
        libraries={"torch": bench.environment.torch, **form.versions()},
        host=f"{bench.environment.cpu} ({bench.environment.architecture})",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def plan_of_file(document: Document, kind: Kind, around: Surroundings) -> tuple[str, Plan]:
    """Return the label and the plan of the file: the winner's if it is of this runtime, else those of the best that is.

    If none was measured, they are the runtime's defaults. The file takes all the sizes that it can, as there is no
    second program for other sizes.
    """
    measured = (trial for trial in document.trials if trial.status == "measured")
    for entry in (document.winner, *measured):
        if entry.plan.runtime == kind.name:
            words = (word for word in entry.label.split() if word != f"sizes={entry.plan.sizes}")
            return " ".join(words), replace(entry.plan, sizes="")
    return f"{kind.name} with its defaults", Plan(runtime=kind.name, settings=kind.settings(around))


def _refusal(bench: Bench, failure: Failure, name: str) -> Exception:
    if failure.kind == "timeout":
        spent = f"the budget ended before {name} was written and verified"
        return NotExportable(spent, where=bench.workload.name, remedy="give a larger budget")
    kind = "" if failure.kind == "unsupported" else f"{failure.kind.replace('_', ' ')}: "
    message = f"{kind}{failure.message.splitlines()[0]}"
    fault = f"cannot be exported as {name}: {message}; nothing was written"
    others = ", ".join(other for other in formats() if other != name)
    by_metric = "; if a metric judged the run, use Recommendation.export, which has it"
    remedy = f"try another format ({others}){by_metric if failure.kind == 'wrong_result' else ''}"
    return NotExportable(fault, where=bench.workload.name, remedy=remedy)
