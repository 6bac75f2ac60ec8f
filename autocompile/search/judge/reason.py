"""The reason for a verdict, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autocompile.core.limits import beyond
from autocompile.core.words import Words
from autocompile.search.judge.contender import STARTUP_UNCERTAINTY, Contender, beats
from autocompile.search.judge.field import WORTH_SIMPLICITY


@dataclass(frozen=True)
class Case:
    """The judgement that a reason is given for.

    `winner` is best over the range of numbers of calls that contains `calls`; `preferred` is best at exactly `calls`.
    The two differ where the range of `preferred` is narrow. `tied` holds the candidates that are not clearly slower
    than any other, and `disturbed` those of `disturbed_ahead`, the fastest first; `ranking` holds all measured
    candidates. `words`: what a call of this workload is named.
    """

    winner: Contender
    preferred: Contender
    tied: tuple[Contender, ...]
    disturbed: tuple[Contender, ...]
    ranking: tuple[Contender, ...]
    calls: float
    margin: float
    words: Words


def reason(case: Case, owed: Sequence[Contender], *, can_be_told: bool) -> str:
    """Return why the winner won, what the verdict leaves open, and which candidate is faster but exceeds a limit."""
    if not can_be_told:
        return f"this host is too noisy for a verdict: identical programs may differ by ±{case.margin:.0%} here"
    ahead = next((c.label for c in case.disturbed), "")
    if ahead and (case.winner.origin == "baseline" or case.winner.noisy):
        return (
            f"{ahead} was ahead, but other programs used this host while it was timed, "
            f"which distorts its ratio, so no candidate counts as faster than {case.winner.label}; "
            "tune again while the host is quiet"
        )
    parts = [_amortized(case), _won(case)]
    if ahead:
        parts.append(f"{ahead} was ahead, but other programs used this host while it was timed")
    parts += [_open(case.winner, owed), _ruled_out(case)]
    return "; ".join(filter(None, parts))


def _amortized(case: Case) -> str:
    winner, gain = case.winner, case.winner.ratio.inverse()
    over = ", start-up not counted"
    if math.isfinite(case.calls):
        over = f" over {case.calls:,.0f} {case.words.counted(case.calls)}, start-up included"
    amortized = f"{winner.per_call_s(case.calls).value * 1e3:.4g} ms a {case.words.one}{over}"
    if winner.origin == "baseline" or winner is not case.tied[0]:
        return amortized
    faster = f"{gain.value:.2f}x the baseline's speed per {case.words.one}"
    return f"{amortized}, {faster} (95%: {gain.low:.2f} to {gain.high:.2f})"


def _won(case: Case) -> str:
    """Return how the winner compares with the candidates that are not clearly slower."""
    winner, best = case.winner, case.tied[0]
    if winner is not case.preferred:
        number = f"at exactly this number of {case.words.many},"
        return f"{number} {case.preferred.label} would be preferred, but not for slightly fewer"
    if winner is not best:
        told = _not_ahead(case, best)
        return f"{told}, so the simpler one is preferred" if winner.changes < best.changes else told
    if winner.origin == "baseline":
        mine = winner.per_call_s(case.calls).value
        if any(c.per_call_s(case.calls).value < mine for c in case.ranking if c.is_feasible):
            return f"no candidate{_keeping(case)} was faster beyond the noise"
        return f"no faster candidate{_keeping(case)} was measured"
    return _simplest(winner, [c for c in case.tied if c is not winner])


def _not_ahead(case: Case, best: Contender) -> str:
    """Return why the candidate that reads fastest does not beat the winner."""
    if math.isfinite(case.calls) and beats(best, case.winner, math.inf):
        once = f"start-up is measured only once and may be off by {STARTUP_UNCERTAINTY:.0%}"
        few = f"not certainly ahead over so few {case.words.many}"
        return f"{best.label} is faster per {case.words.one}, but {few}: {once}"
    return f"{best.label} is not faster beyond the noise (about {case.margin:.1%} between processes here)"


def _keeping(case: Case) -> str:
    return " within the limits" if any(c.excess for c in case.ranking) else ""


def _simplest(winner: Contender, others: Sequence[Contender]) -> str:
    if not others:
        return ""
    told = f"not distinguishable from {', '.join(c.label for c in others)}"
    fewest = min(c.changes for c in others)
    if winner.changes < fewest:
        return f"{told}, and the simplest of them"
    if winner.changes == fewest:
        return f"{told}, and none of them is simpler"
    return f"{told}, but no simpler one is within {WORTH_SIMPLICITY:.0%} of its time"


def _open(winner: Contender, owed: Sequence[Contender]) -> str:
    """Return what a missing final leaves open."""
    others = [c.label for c in owed if c is not winner]
    if others:
        read = "reads" if len(others) == 1 else "read"
        were = "was" if len(others) == 1 else "were"
        too = f", as was {winner.label}" if winner in owed else ""
        return (
            f"the verdict is open: {', '.join(others)} {read} as good or better in every column, "
            f"but {were} measured only once, without a final{too}"
        )
    return f"the verdict is open: {winner.label} was measured only once, without a final" if owed else ""


def _ruled_out(case: Case) -> str:
    """Return which candidate is faster but violates a constraint."""
    faster = (c for c in case.ranking if not c.is_feasible and beats(c, case.winner, case.calls))
    quicker = next(faster, None)
    return f"{quicker.label} is faster, but misses {beyond(quicker.excess)}" if quicker else ""
