"""Tune the prompts of a model that generates text, after its decode steps.

Prompts are a study of their own, because what is fastest for one token is often not fastest for many. Both results are
used together only if whole texts then still have the same tokens as eager's.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from autocompile.artifact.integrity import manifest_digest, open_manifest, prompts_directory, write_manifest
from autocompile.core.document import Document, PromptsEntry
from autocompile.core.errors import RunnerError, UsageError
from autocompile.core.job import Limits
from autocompile.core.notices import of_prompts
from autocompile.core.outcome import Failure, Measurement
from autocompile.core.workload import GenerationEntry, Workload
from autocompile.search.pack.loading import INTERRUPTED
from autocompile.search.run import Bench
from autocompile.search.session import run_study

# The share of the time that prompts get is the share of generating that they take, within these bounds.
_LEAST_SHARE, _LARGEST_SHARE = 0.35, 0.5
# With fewer seconds, hardly any candidate could be measured.
_LEAST_S = 60.0
# A process that generates texts gets at least this time, as it may end later than planned.
_LEAST_TOGETHER_S = 20.0
# The dimensions in which what is fastest for decode steps is tried first for prompts.
_ALIKE = ("runtime", "amp")
# The share of the prompts' time for the texts that are generated with both results.
_TOGETHER_SHARE = 0.2


@dataclass(frozen=True)
class Tuned:
    """The recommendation for prompts: its document, the directory of its artifact, and the artifact's digest."""

    document: Document
    artifact: Path
    digest: str

    @property
    def directory(self) -> str:
        """The name of its directory within that of the whole recommendation."""
        return prompts_directory(self.digest)


def keep_time_for_prompts(bench: Bench) -> None:
    """Keep a part of the budget for prompts, if the workload has any. Give a notice if the budget is too small."""
    if bench.workload.prompts is None:
        return
    seen, left_s = _seen(bench.workload), bench.ledger.left_s()
    share = min(max(seen.prefill_share, _LEAST_SHARE), _LARGEST_SHARE)
    if share * left_s < _LEAST_S:
        bench.ledger.notice(of_prompts(seen.prefill_share, _LEAST_S / share + bench.ledger.elapsed_s))
    else:
        bench.ledger.keep(share * left_s)


def with_prompts(bench: Bench, document: Document) -> tuple[Document, Tuned | None]:
    """Tune the prompts in the time that was kept for them. `document` is the recommendation for decode steps.

    Return the document with an entry on prompts, and the recommendation for prompts; None if no time was kept, or if
    there is no result. A Ctrl-C ends this part of the run: the document is then not complete.
    """
    if bench.workload.prompts is None or not bench.ledger.kept_s or not document.complete:
        return document, None
    try:
        own = _bench_of_prompts(bench, bench.workload.prompts, document)
        bench.listener.on_workload(own.workload)
        found = run_study(own)
        tuned = Tuned(found, own.artifact, manifest_digest(own.artifact))
        entry = replace(_entry(document, found), directory=tuned.directory)
        if not entry.left:
            entry = _together(bench, document, tuned, entry)
    except (RunnerError, UsageError) as fault:
        return replace(document, prompts=PromptsEntry(left=str(fault))), None
    except KeyboardInterrupt:
        return replace(document, complete=False, stopped=INTERRUPTED, prompts=PromptsEntry(left=INTERRUPTED)), None
    stopped = {} if found.complete else {"complete": False, "stopped": found.stopped}
    return replace(document, prompts=entry, **stopped), tuned


def named(bench: Bench, document: Document, tuned: Tuned) -> Document:
    """Name the artifact for prompts in the manifest, if it is used; return the document with the new digest."""
    if document.prompts is None or document.prompts.left:
        return document
    write_manifest(bench.artifact, replace(open_manifest(bench.artifact), prompts=tuned.digest))
    return replace(document, artifact=replace(document.artifact, digest=manifest_digest(bench.artifact)))


def _seen(workload: Workload) -> GenerationEntry:
    assert workload.generation is not None, "only generating has prompts"
    return workload.generation


def _bench_of_prompts(bench: Bench, prompts: Workload, document: Document) -> Bench:
    goal = bench.settings.goal.for_prompts(_seen(bench.workload))
    artifact = bench.artifact.with_name("prompts")
    reference = bench.reference.parent.with_name("reference-prompts") / bench.reference.name
    artifact.mkdir()
    reference.parent.mkdir()
    return dataclasses.replace(
        bench,
        workload=prompts,
        ledger=bench.ledger.next(1 - _TOGETHER_SHARE),
        settings=dataclasses.replace(bench.settings, goal=goal),
        artifact=artifact,
        reference=reference,
        first={name: value for name, value in document.winner.config.items() if name in _ALIKE},
    )


def _entry(steps: Document, prompts: Document) -> PromptsEntry:
    """Return what is known about prompts before they are used together with decode steps."""
    winner = prompts.winner
    left = prompts.stopped if not prompts.complete else ""
    if winner.number == prompts.baseline.number:
        compiled = [entry for entry in prompts.trials if entry.compile_s and entry.status == "measured"]
        left = "no candidate is faster than eager" if compiled else "the time was too short to measure a candidate"
    elif not prompts.is_feasible:
        left = prompts.reason
    return PromptsEntry(
        label=winner.label,
        speedup=winner.speedup,
        latency_ms=winner.latency_ms,
        baseline_ms=prompts.baseline.latency_ms,
        left=left or _conflict(steps, prompts),
    )


def _conflict(steps: Document, prompts: Document) -> str:
    """Return why one process cannot serve both, or "": `torch.compile` reads the setting of freezing process-wide."""
    compiling = [document for document in (steps, prompts) if document.artifact.start in ("cache", "compile")]
    if len(compiling) == 2 and steps.winner.config.get("freezing") != prompts.winner.config.get("freezing"):
        return f"{prompts.winner.label} and {steps.winner.label} compile with other settings of the whole process"
    return ""


def _together(bench: Bench, document: Document, tuned: Tuned, entry: PromptsEntry) -> PromptsEntry:
    """Generate whole texts with both results, and return the entry with the outcome."""
    bench.listener.on_stage("texts")
    bench.listener.on_task(f"texts with {document.winner.label} and {entry.label}")
    limit_s = max(_LEAST_TOGETHER_S, bench.ledger.whole_left_s)
    timing = bench.settings.strategy.finals.timing
    task = bench.trial_task(document.winner.plan, timing, 2000, learning_s=limit_s / 2)
    artifact = str(bench.artifact) if document.artifact.serving.is_packed else ""
    task = replace(task, artifact=artifact, prompts=str(tuned.artifact))
    limits = Limits(total_s=limit_s, memory_bytes=bench.memory_limit())
    reply = bench.reply_to(task, limits, Measurement, cache="texts")
    if isinstance(reply, Failure):
        return replace(entry, left=f"{reply.kind.replace('_', ' ')}: {reply.message.splitlines()[0]}")
    if reply.generated is None or reply.generated.skipped:
        why = reply.generated.skipped if reply.generated else "no text was generated"
        return replace(entry, left=f"whole texts could not be compared: {why}")
    return replace(entry, generated=reply.generated)
