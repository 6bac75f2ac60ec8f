"""The candidates to try first: the strategy's seeds, in the order that the profile suggests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autocompile.core.candidate import Candidate, Value
from autocompile.core.plan import Plan
from autocompile.core.workload import ScriptEntry
from autocompile.search.as_is import plan_of
from autocompile.search.choose.circumstances import CIRCUMSTANCES, Circumstance
from autocompile.search.choose.evidence import Evidence
from autocompile.search.strategy import Strategy
from autocompile.space.space import Space

# The values of the dimension `amp` by the dtype of autocast.
_AMP = {"": "off", "bfloat16": "bf16", "float16": "fp16"}


@dataclass(frozen=True)
class Seed:
    """A candidate to try early, and the reason for its place in the order, or ""."""

    candidate: Candidate
    reason: str


def batch_seeds(space: Space) -> list[Seed]:
    """Return every runtime with its defaults at each batch size, the sizes that were most promising in eager first."""
    reason = "ordered by the time per sample in eager"
    return [
        Seed(space.candidate(runtime=runtime, batch=size), reason)
        for size in space.around.batches
        for runtime in space.open_values["runtime"][::-1]
    ]


def seeds_of_the_script(script: ScriptEntry | None, space: Space) -> list[Seed]:
    """Return what a script does now, if it differs from the baseline and can be tried; it is always measured."""
    if script is None:
        return []
    now = plan_of(script)
    candidate = space.candidate(runtime=now.runtime, amp=_AMP[now.autocast])
    is_open = all(candidate.values[name] in values for name, values in space.open_values.items())
    seed = Seed(candidate, "what the script itself does now")
    return [seed] if is_open and space.plan(candidate) == now != Plan() else []


def seeds_of_values(values: Mapping[str, Value], space: Space) -> list[Seed]:
    """Return the candidate with these values, if there are any, as far as they are open here."""
    is_open = values and all(value in space.open_values[name] for name, value in values.items())
    return [Seed(space.candidate(**values), "it won for the decode steps")] if is_open else []


def ordered_seeds(strategy: Strategy, space: Space, evidence: Evidence) -> list[Seed]:
    """Return the strategy's seeds that are possible here, the most promising first; ties keep the strategy's order."""
    ranked = []
    for values in strategy.seeds:
        if all(value in space.open_values[name] for name, value in values.items()):
            applied = [row for row in CIRCUMSTANCES if row.urgency and _concerns(row, values) and row.holds(evidence)]
            reason = "; ".join(row.order(evidence) for row in applied)
            ranked.append((sum(row.urgency for row in applied), Seed(space.candidate(**values), reason)))
    return batch_seeds(space) + [seed for _urgency, seed in sorted(ranked, key=lambda pair: -pair[0])]


def _concerns(circumstance: Circumstance, seed: Mapping[str, Value]) -> bool:
    return any(values <= set(seed.items()) for values in circumstance.usual)
