"""Other runs on the same study: how many there are, what they found, and when this run waits for them."""

from __future__ import annotations

import math

from autocompile.core.notices import of_other_kinds, of_sharing
from autocompile.core.outcome import Failure
from autocompile.core.trial import Trial
from autocompile.core.units import format_ms
from autocompile.search.archive import Archive
from autocompile.search.run import Bench
from autocompile.search.study.family import StudyName

# If the baselines of two machines differ by at most this factor, the machines count as equally fast.
_AS_FAST = 1.25
# With less time than this left for the search, in seconds, the run does not wait.
_TOO_LATE_S = 3.0


def tell_of_the_study(bench: Bench, archive: Archive, about: StudyName) -> None:
    """Report what the study knows already, how many other runs work on it, and which machines have their own study."""
    known, others = len(archive.trials()), archive.other_runs
    if known:
        left = "of the study" if others else "of an earlier run"
        state = f"continues with {known} trial{'s' * (known != 1)} {left}"
        bench.ledger.decide("noted", "study", state)
        bench.listener.on_notice(f"the study {state}")
    if others:
        bench.ledger.decide("noted", "study", f"{others} other run{'s work' if others != 1 else ' works'} on it")
    bench.ledger.notice(of_sharing(others))
    bench.ledger.notice(of_other_kinds(archive.of_other_kinds(about)))


def tell_news(bench: Bench, archive: Archive) -> None:
    """Write into the journal what other runs have found since the last call."""
    for trial in archive.news():
        bench.ledger.decide("noted", trial.label, f"another run {_told(trial)}")
        bench.listener.on_trial(trial)


def _told(trial: Trial) -> str:
    if isinstance(trial.outcome, Failure):
        return f"tried it: {trial.outcome.kind.replace('_', ' ')} in phase {trial.outcome.stage}"
    return f"measured it: {1 / trial.outcome.ratio.value:.2f}x the speed of its baseline"


def wait_for_baseline(bench: Bench, archive: Archive) -> None:
    """Wait a moment for the run that measures the baseline. Raises BudgetTooSmall when time is up."""
    bench.listener.on_task("baseline, by another run")
    if not bench.ledger.left_s():
        raise bench.too_small()
    archive.wait()


def compare_baselines(bench: Bench, archive: Archive, here_ms: float) -> None:
    """Note in the journal if another run measured the study's baseline at a clearly different speed."""
    baseline = next(trial for trial in archive.trials() if trial.origin == "baseline")
    assert baseline.measurement is not None
    there_ms = baseline.measurement.latency.p50_ms
    if not archive.was_told_here(baseline.number) and abs(math.log(here_ms / there_ms)) > math.log(_AS_FAST):
        took = f"a call takes {format_ms(here_ms)} here, and {format_ms(there_ms)} on the machine that measured it"
        bench.ledger.decide("noted", "baseline", f"{took}: speed-ups are comparable, times are that machine's")


def waits_for(bench: Bench, archive: Archive, left_s: float) -> bool:
    """Whether there is time to wait for trials of other runs; if so, wait for a moment.

    Such a trial may win, and its candidate is open again if its run is gone. `left_s`: the time left for the search.
    """
    others = archive.claims_of_others
    if not others or left_s < _TOO_LATE_S:
        return False
    bench.listener.on_task(f"{len(others)} trial{'s' * (len(others) != 1)}, by other runs")
    archive.wait()
    tell_news(bench, archive)
    return True
