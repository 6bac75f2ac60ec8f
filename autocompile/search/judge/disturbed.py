"""Which finalists need further processes because other programs used the host while they were timed."""

from __future__ import annotations

import math
from collections.abc import Mapping

from autocompile.core.trial import Trial
from autocompile.search.judge.contender import Contender
from autocompile.search.judge.verdict import Verdict


def disturbed_finalists(verdict: Verdict, finalists: Mapping[int, Trial], processes: int) -> list[Contender]:
    """Return the leading finalists of which fewer than `processes` processes were timed on a quiet host, in order.

    `finalists`: their trials, by number.
    """
    some = (c for c in verdict.ranking if c.number in finalists and _is_leading(c, verdict))
    return [c for c in some if _lacks_quiet(finalists[c.number], processes)]


def _is_leading(contender: Contender, verdict: Verdict) -> bool:
    """Whether a candidate wins or reads faster than the winner, or is a baseline that others cannot be judged by."""
    if contender.origin == "baseline":
        return contender.is_disturbed(math.inf)
    return contender in (verdict.winner, verdict.tied[0], *verdict.disturbed)


def _lacks_quiet(trial: Trial, processes: int) -> bool:
    quiet = sum(not one.contamination.noisy for one in trial.finals)
    return quiet < min(processes, len(trial.finals))
