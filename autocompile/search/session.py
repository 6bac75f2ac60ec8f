"""One run, from a spooled workload to a document: profile, search, finals, verdict, packing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from autocompile.core.candidate import Value
from autocompile.core.document import Document
from autocompile.core.errors import InvalidValue, InvalidWorkload, RunnerError
from autocompile.core.goal import Objective
from autocompile.core.job import Limits, LoaderTask, ProfileTask, ToolchainTask
from autocompile.core.notices import of_compiling, of_loading, of_missing, of_profile
from autocompile.core.outcome import Failure, Toolchain
from autocompile.core.pipeline import Loaders
from autocompile.core.plan import EAGER
from autocompile.core.profile import Profile
from autocompile.core.serde import to_json
from autocompile.core.trial import Trial
from autocompile.core.words import words_of
from autocompile.runtime.catalogue import installs_for, kinds, open_space, plain, problem_here
from autocompile.search.archive import STUDY_VERSION, Archive
from autocompile.search.batches import find_batches
from autocompile.search.choose.evidence import Evidence
from autocompile.search.compose import Findings, compose
from autocompile.search.finals import run_finals
from autocompile.search.judge.verdict import Verdict, judge
from autocompile.search.loaders import with_loaders
from autocompile.search.others import tell_of_the_study
from autocompile.search.pack.delivery import deliver_winner
from autocompile.search.pack.loading import INTERRUPTED
from autocompile.search.run import Bench
from autocompile.search.screening import search, try_first
from autocompile.search.study.family import StudyName
from autocompile.space.space import Space
from autocompile.space.surroundings import Surroundings, hottest_parts, surroundings_of

_METRICS: dict[Objective, str] = {
    "time": "seconds per call, start-up included",
    "latency": "seconds per call, at the goal's percentile",
    "throughput": "seconds per call's worth of samples",
}


def run_study(bench: Bench) -> Document:
    """Find the fastest correct way to run the workload within the budget.

    Raises InvalidWorkload if the model fails on its own inputs, BudgetTooSmall if not even the baseline fits. An
    interrupt by the user (KeyboardInterrupt) ends the search, and the trials so far are judged.
    """
    toolchain = prepare_toolchain(bench)
    profile = with_loaders(take_profile(bench), bench.workload, bench.ledger.left_s(), partial(_try_loaders, bench))
    bench.ledger.notice(of_loading(profile))
    around = surroundings_of(bench.workload, bench.environment, profile, toolchain)
    goal = bench.settings.goal
    around = replace(around, loads_artifacts=goal.loads_artifacts, limits_memory=goal.max_memory is not None)
    others = any(not problem_here(kind, around) for kind in kinds() if kind.name not in (EAGER, plain().name))
    bench.ledger.notice(of_compiling(problem_here(plain(), around), others=others))
    bench.ledger.notice(of_missing(installs_for(around)))
    with _archive(bench, around) as archive:
        trials, stopped = _searched(bench, archive, around, profile)
    delivery = deliver_winner(bench, trials, stopped)
    as_given = _as_given(bench, delivery.trials, delivery.verdict)
    return compose(bench, Findings(profile, toolchain, as_given, delivery))


def _searched(bench: Bench, archive: Archive, around: Surroundings, profile: Profile) -> tuple[Sequence[Trial], str]:
    """Return all trials when the search and the finals are over, and why they ended early, or ""."""
    space, eager_ms = _space(bench, archive, around, profile)
    workload = bench.workload
    evidence = Evidence(profile, bench.environment, workload.device_type, len(workload.signatures), eager_ms)
    stopped = ""
    try:
        try_first(bench, space, archive, evidence)
        search(bench, space, archive, evidence)
        run_finals(bench, archive)
    except (KeyboardInterrupt, RunnerError) as stop:
        for claim in archive.claims:  # running trials were ended, or end with the runner
            archive.abandon(claim.number)
        if not _has_baseline(archive):
            raise
        stopped = str(stop) if isinstance(stop, RunnerError) else INTERRUPTED
        if isinstance(stop, RunnerError):
            bench.ledger.decide("stopped", "the search", f"{stop}; the trials so far are judged")
        else:
            bench.ledger.decide("stopped", "the run", "interrupted; the trials measured so far are judged")
    return _measured_trials(bench, archive), stopped


def _as_given(bench: Bench, trials: Sequence[Trial], verdict: Verdict) -> Verdict | None:
    """Return the verdict among the candidates at the given batch; None if no other batch size was tried."""
    batches = {trial.number: trial.plan.batch for trial in trials}
    if not any(batches.values()):
        return None
    if not batches[verdict.winner.number]:
        return verdict
    given = [c for c in verdict.ranking if not batches[c.number]]
    return judge(given, bench.spread_over(trials), verdict.margin)


def prepare_toolchain(bench: Bench) -> Toolchain:
    """Pay the machine's one-off compiler costs first, so that no candidate is charged for them."""
    bench.listener.on_stage("toolchain")
    bench.listener.on_task("compiler check")
    limits = Limits(total_s=max(1.0, bench.ledger.left_s()))
    reply = bench.reply_to(ToolchainTask(device=bench.workload.device), limits, Toolchain, cache="toolchain")
    if isinstance(reply, Failure):
        return Toolchain(cold_s=0.0, instruction_set="", problem=f"the compiler check failed: {reply.message}")
    return reply


def take_profile(bench: Bench) -> Profile:
    """Profile the baseline and write the reference. Raises UsageError if the model or the goal is at fault."""
    bench.listener.on_stage("profile")
    bench.listener.on_task("profile of the baseline")
    task = ProfileTask(
        workload=bench.workload,
        reference=str(bench.reference),
        timing=bench.settings.strategy.screening.timing,
        seed=bench.settings.seed,
        metric=bench.metric,
    )
    limits = Limits(total_s=max(1.0, bench.ledger.left_s()), memory_bytes=bench.memory_limit())
    reply = bench.reply_to(task, limits, Profile, cache="profile")
    if isinstance(reply, Failure):
        if reply.kind == "timeout":
            raise bench.too_small()
        if reply.kind == "invalid":
            raise InvalidWorkload(reply.message)
        words = words_of(bench.workload.kind)
        raise InvalidWorkload(
            f"{words.fails}: {reply.message}", where=bench.workload.name, remedy=f"{words.try_it} until it runs"
        )
    tolerance = bench.settings.goal.tolerance
    if tolerance is not None and tolerance < reply.error_floor:
        raise InvalidValue(
            f"{tolerance:g} cannot be met: the baseline itself is off by {reply.error_floor:.2g} ({reply.reference})",
            where="tolerance",
            remedy=f"give at least {2 * reply.error_floor:.1g}",
        )
    bench.settings.goal.check_horizon(reply.baseline_ms.value / 1e3)
    for note in reply.notes:
        bench.ledger.decide("noted", "baseline", note)
    bench.ledger.notice(of_profile(reply))
    return reply


def _try_loaders(bench: Bench, task: LoaderTask, limits: Limits) -> Loaders | Failure:
    bench.listener.on_task("loader settings")
    return bench.reply_to(task, limits, Loaders, cache="loader")


def _archive(bench: Bench, around: Surroundings) -> Archive:
    """Open the study of this workload, on this kind of machine, over this space, for this goal."""
    goal, here, gpus = bench.settings.goal, bench.environment, bench.workload.gpus
    asked, _left_out = open_space(around, bench.settings.strategy.dimensions)
    about = StudyName(
        workload=f"{bench.workload.name} v{STUDY_VERSION} {bench.workload.fingerprint[:8]}",
        machine=here.fingerprint_with(gpus)[:8],
        acceptance=goal.acceptance_digest,
        search=f"{asked.digest} {goal.digest}",
        metric=_METRICS[goal.objective],
        attributes={
            "workload": bench.workload.name,
            "device": gpus[0].name if gpus else here.cpu,
            "torch": here.torch,
            "goal": to_json(goal.entry()).decode(),
        },
    )
    archive = Archive(about, bench.settings.storage, bench.settings.strategy.search, bench.settings.seed)
    tell_of_the_study(bench, archive, about)
    return archive


def _space(bench: Bench, archive: Archive, around: Surroundings, profile: Profile) -> tuple[Space, dict[int, float]]:
    """Return the space, and eager's milliseconds per call by batch size.

    The first run of a study finds the batch sizes and the hottest submodules; later runs use the same values.
    """

    def find() -> dict[str, list[Value]]:
        sizes = find_batches(bench)
        in_us: list[Value] = [round(each_ms * 1e3) for each_ms in sizes.values()]
        return {"batch": [*sizes], "eager_us": in_us, "hottest": [*hottest_parts(profile.submodules)]}

    values = archive.remembered("values", find)
    batches = tuple(map(int, values["batch"]))
    eager_ms = dict(zip(batches, (int(us) / 1e3 for us in values["eager_us"]), strict=True))
    around = replace(around, batches=batches, hottest=tuple(map(str, values["hottest"])))
    space, left_out = open_space(around, bench.settings.strategy.dimensions)
    for subject, reason in left_out:
        bench.ledger.decide("narrowed", subject, reason)
    for kind in kinds():
        for subject, note in kind.notes(around) if not problem_here(kind, around) else ():
            bench.ledger.decide("narrowed", subject, note)
    return space, eager_ms


def _measured_trials(bench: Bench, archive: Archive) -> list[Trial]:
    if not _has_baseline(archive):
        raise bench.too_small()
    return archive.trials()


def _has_baseline(archive: Archive) -> bool:
    return any(trial.origin == "baseline" and trial.measurement for trial in archive.trials())
