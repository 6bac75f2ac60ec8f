"""What `load(calls=)` chooses among, and which of it is best for how many calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autocompile.core.envelope import Segment
from autocompile.core.manifest import Served
from autocompile.core.trial import Trial
from autocompile.runtime.catalogue import kind_of
from autocompile.search.judge.contender import Contender
from autocompile.search.judge.verdict import judge
from autocompile.search.run import Bench


@dataclass(frozen=True)
class Offers:
    """`served`: the winner, the baseline, and who is best for some number of calls, as `envelope` has it.

    All of them take the winner's batch, as production feeds one size, and start by compiling. Only what is packed
    does not: it is in the envelope as `..., packed`, in the winner's place.
    """

    served: tuple[Served, ...]
    envelope: tuple[Segment, ...]


def offers(bench: Bench, winner: Trial, trials: Sequence[Trial], packed: Contender | None = None) -> Offers:
    """What can be served by an artifact of this winner, of all these measured trials.

    `packed`: the winner as production loads it, measured or else expected, if it was packed.
    """
    by_number = {trial.number: trial for trial in trials}
    compiled = bench.verdict(trials, {trial.plan.key: trial.startup_s for trial in trials})
    some = [
        c for c in compiled.ranking if by_number[c.number].plan.batch == winner.plan.batch or c.origin == "baseline"
    ]
    field = [replace(packed, label=f"{c.label}, packed") if packed and c.number == winner.number else c for c in some]
    envelope = judge(field, bench.spread_over(trials), compiled.margin).envelope
    best = {segment.label for segment in envelope}
    kept = [c for c in some if c.label in best or (c.origin == "baseline" and c.is_feasible)]
    own = next(c for c in some if c.number == winner.number)
    ordered = (own, *(c for c in kept if c is not own))
    return Offers(tuple(_configured(c, by_number[c.number]) for c in ordered), envelope)


def _configured(one: Contender, trial: Trial) -> Served:
    """How one that is not packed serves: compiled at the first call, or eager; its start-up is the cold one."""
    serving = kind_of(trial.plan).unpacked
    return Served(serving, trial.label, trial.plan, trial.startup_s, one.latency_s.value, one.ratio.inverse())
