"""Measure a recommendation again: whether it is still correct on this host, and still as fast."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from autocompile.artifact.integrity import open_manifest
from autocompile.core.candidate import Candidate
from autocompile.core.document import Document
from autocompile.core.estimate import Estimate
from autocompile.core.job import Limits
from autocompile.core.outcome import Failure, Generated, Learned, Measurement
from autocompile.core.serde import Record
from autocompile.core.trial import Trial
from autocompile.search.judge.scatter import ratio_of, scatter_of
from autocompile.search.run import Bench
from autocompile.search.session import prepare_toolchain, take_profile

_PROCESSES = 3
# The share of the budget for training in comparison with eager, which the first process does.
_LEARNING_SHARE = 0.1
# Failures of a child that cannot use the artifact: another torch, processor or compute capability.
_UNUSABLE = ("invalid", "unsupported")


RecheckVerdict = Literal["good", "regression", "unusable", "wrong"]


class Recheck(Record, frozen=True):
    """The result: `then` and `now` are speed-ups with intervals; `changes` lists the differences of the host.

    `then_as_configured`: the artifact was not timed when it was packed, so `then` is the speed-up of its configuration.

    `verdict`: `good`, `regression` (slower than then, beyond the noise of both), `unusable` (the artifact does not fit
    this machine any more), or `wrong`; the latter two come with `fault`. `learned`: how a training progressed in
    comparison with eager. `generated`: how whole texts were generated in comparison with eager.
    """

    label: str
    verdict: RecheckVerdict
    then: Estimate
    now: Estimate | None
    fault: str
    changes: tuple[str, ...]
    noisy: bool
    then_as_configured: bool = False
    learned: Learned | None = None
    generated: Generated | None = None


def recheck(bench: Bench, document: Document, artifact: Path) -> Recheck:
    """Measure what production loads from `artifact` in new processes, and compare it with the recorded result.

    If nothing was packed, the configuration is measured instead. If the artifact was packed but not timed, it is
    compared with its configuration, whose speed-up the recommendation reports.

    Raises BudgetTooSmall if not one process fits, UsageError if the model fails.
    """
    prepare_toolchain(bench)
    take_profile(bench)
    then = document.winner.speedup
    assert then is not None
    measured: list[Measurement] = []
    bench.listener.on_stage("verify")
    for round_number in range(_PROCESSES):
        if measured and bench.ledger.left_s() < sum(measured[-1].phases_s.values()):
            break
        bench.listener.on_task(f"process {round_number + 1} of {_PROCESSES}: {document.winner.label}")
        learning_s = 0.0 if measured else _LEARNING_SHARE * bench.ledger.budget_s
        timing = bench.settings.strategy.finals.timing
        task = bench.trial_task(document.winner.plan, timing, round_number, learning_s=learning_s)
        task = replace(task, artifact=str(artifact.resolve())) if _is_packed(document) else task
        task = replace(task, prompts=_prompts_of(document, artifact.resolve()))
        limits = Limits(total_s=max(1.0, bench.ledger.left_s()), memory_bytes=bench.memory_limit())
        reply = bench.reply_to(task, limits, Measurement, cache="winner")
        bench.listener.on_trial(_trial(document, reply, ()))
        if isinstance(reply, Failure):
            if reply.kind == "timeout":
                break
            if reply.kind in _UNUSABLE:
                return _outcome(bench, document, then, reply.message, verdict="unusable")
            return _outcome(bench, document, then, f"{reply.kind.replace('_', ' ')}: {reply.message}", verdict="wrong")
        measured.append(reply)
    if not measured:
        raise bench.too_small()
    trial = _trial(document, measured[0], tuple(measured))
    now = ratio_of(trial, scatter_of([trial])).inverse()
    slower = math.log(then.value / now.value) > math.hypot(then.relative_halfwidth, now.relative_halfwidth)
    outcome = _outcome(bench, document, then, "", verdict="regression" if slower else "good")
    seen = measured[0]
    return replace(outcome, now=now, noisy=trial.is_noisy, learned=seen.learned, generated=seen.generated)


def _is_packed(document: Document) -> bool:
    return document.artifact.serving.is_packed


def _prompts_of(document: Document, artifact: Path) -> str:
    """Return the directory of the artifact for prompts, which is checked, or "" if there is none."""
    if document.prompts is None or document.prompts.left:
        return ""
    directory = artifact / document.prompts.directory
    open_manifest(directory, open_manifest(artifact).prompts)
    return str(directory)


def _trial(document: Document, outcome: Measurement | Failure, finals: tuple[Measurement, ...]) -> Trial:
    winner = document.winner
    return Trial(
        number=0,
        label=winner.label,
        candidate=Candidate(winner.config),
        plan=winner.plan,
        origin="search",
        outcome=outcome,
        changes=0,
        finals=finals,
    )


def _outcome(bench: Bench, document: Document, then: Estimate, fault: str, *, verdict: RecheckVerdict) -> Recheck:
    return Recheck(
        label=_label(document),
        verdict=verdict,
        then=then,
        now=None,
        fault=fault,
        changes=_changes(bench, document),
        noisy=False,
        then_as_configured=bool(document.artifact.untimed),
    )


def _label(document: Document) -> str:
    """Return the winner's label and what serves it; for training only the label, as nothing is served."""
    label = document.winner.label
    return label if document.workload.training else f"{label}, served by {document.artifact.serving}"


def _changes(bench: Bench, document: Document) -> tuple[str, ...]:
    then, now = document.environment, bench.environment
    fields = [name for name in then.__struct_fields__ if getattr(then, name) != getattr(now, name)]
    return tuple(f"{name}: {getattr(then, name)} then, {getattr(now, name)} now" for name in fields)
