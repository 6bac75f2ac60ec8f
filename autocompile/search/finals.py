"""The best few, the baseline and plain `torch.compile` again: a process has a bias of its own."""

from __future__ import annotations

from msgspec.structs import replace

from autocompile.core.job import Limits
from autocompile.core.outcome import Failure, Measurement
from autocompile.core.trial import Trial
from autocompile.core.units import format_duration
from autocompile.search.archive import Archive
from autocompile.search.bench import Bench
from autocompile.search.judge import hopeless, judge

_FIRST_GUESS_S = 2.0


def run_finals(bench: Bench, archive: Archive) -> None:
    """Measure the finalists in fresh processes, rounds interleaved, as far as the budget goes."""
    rules = bench.settings.strategy.finals
    finalists = _finalists(bench, archive)
    if len(finalists) == 1:
        bench.ledger.decide("skipped", "finals", f"only {finalists[0].label} was measured")
        return
    bench.listener.on_stage("finals")
    durations: list[float] = []
    for round_number in range(rules.processes):
        for trial in finalists:
            if len(trial.finals) > round_number:  # an earlier run has done it
                continue
            left = bench.ledger.left_s(reserve=bench.settings.strategy.stages.packing)
            if left < max(durations, default=_FIRST_GUESS_S):
                wanted = rules.processes * len(finalists)
                bench.ledger.decide(
                    "skipped", "finals", f"{format_duration(left)} left after {len(durations)} of {wanted} processes"
                )
                return
            began = bench.ledger.elapsed_s
            _one_final(bench, archive, trial, round_number)
            durations.append(bench.ledger.elapsed_s - began)


def _finalists(bench: Bench, archive: Archive) -> list[Trial]:
    """The best few that can still win, then plain `torch.compile` and the baseline."""
    trials = archive.trials()
    baseline_s, calls = bench.scale(trials)
    ranking = judge(trials, baseline_s, calls).ranking
    always = [c for c in ranking if c.trial.origin in ("baseline", "plain")]
    others = [c for c in ranking if c not in always and not hopeless(c, ranking[0], calls)]
    chosen = others[: bench.settings.strategy.finals.candidates]
    left_out = len(ranking) - len(always) - len(chosen)
    if left_out:
        bench.ledger.decide("narrowed", "finals", f"{left_out} measured candidates are too far behind to win")
    return [contender.trial for contender in chosen + always]


def _one_final(bench: Bench, archive: Archive, trial: Trial, round_number: int) -> None:
    """One more process. Its compiler cache is kept from the screening: only its speed is asked for."""
    bench.listener.on_task(f"final {round_number + 1}: {trial.label}")
    seed = 1000 * (round_number + 1) + trial.number
    task = bench.trial_task(trial.plan, bench.settings.strategy.finals.timing, seed)
    limits = Limits(total_s=max(1.0, bench.ledger.left_s()), memory_bytes=bench.memory_limit())
    reply = bench.runner.run(task, limits, cache=trial.plan.key)
    assert isinstance(reply, Measurement | Failure)
    bench.ledger.charge(reply.phases_s)
    if isinstance(reply, Failure):
        bench.ledger.decide("failed", f"final of {trial.label}", reply.message)
        if reply.kind != "timeout" and trial.origin != "baseline":
            archive.disqualify(trial, reply)
        return
    archive.add_final(trial, reply)
    bench.listener.on_trial(replace(trial, finals=(reply,)))
