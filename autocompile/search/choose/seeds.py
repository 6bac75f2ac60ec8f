"""What to try first: the strategy's seeds, in the order that the profile suggests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autocompile.core.candidate import Candidate, Value
from autocompile.search.choose.evidence import Evidence
from autocompile.search.strategy import Strategy
from autocompile.space.space import Space


@dataclass(frozen=True)
class Rule:
    """Moves the seeds that `concerns` picks to the front (`urgency` > 0) or the back (< 0), with its reason."""

    urgency: int
    concerns: Callable[[dict[str, Value]], bool]
    reason: Callable[[Evidence], str]


def _starved_gpu(seen: Evidence) -> str:
    if seen.gpu_starves:
        return f"the GPU is busy {seen.profile.busy_share:.0%} of the time: launches bound it, so CUDA graphs first"
    return ""


def _breaking_graph(seen: Evidence) -> str:
    if seen.blocks_outside_breaks:
        return f"{len(seen.profile.graph_breaks)} graph breaks in the whole model: its repeated blocks first"
    return ""


def _no_matrix_unit(seen: Evidence) -> str:
    if seen.on_cpu and not seen.has_matrix_unit:
        return "this CPU has no AMX unit for bf16, where autocast is usually slower than float32: last"
    return ""


def _matrix_unit(seen: Evidence) -> str:
    if seen.on_cpu and seen.has_matrix_unit:
        return "this CPU has an AMX unit for bf16: first"
    return ""


RULES = (
    Rule(2, lambda seed: seed.get("mode") in ("reduce-overhead", "max-autotune"), _starved_gpu),
    Rule(2, lambda seed: seed.get("scope") == "blocks", _breaking_graph),
    Rule(1, lambda seed: seed.get("amp") == "bf16", _matrix_unit),
    Rule(-1, lambda seed: seed.get("amp") == "bf16", _no_matrix_unit),
)


@dataclass(frozen=True)
class Seed:
    """A candidate to try early, and why it stands where it stands, or ""."""

    candidate: Candidate
    reason: str


def batch_seeds(space: Space) -> list[Seed]:
    """Plain `torch.compile`, and eager, in each batch size, the most promising as eager showed first."""
    reason = "its time a sample in eager"
    return [
        Seed(space.candidate(runtime=runtime, batch=size), reason)
        for size in space.around.batches
        for runtime in space.open_values["runtime"][::-1]
    ]


def ordered_seeds(strategy: Strategy, space: Space, seen: Evidence) -> list[Seed]:
    """The strategy's seeds that are possible here, the most promising first; ties keep the strategy's order."""
    ranked = []
    for values in strategy.seeds:
        if all(value in space.open_values[name] for name, value in values.items()):
            applied = [(rule.urgency, rule.reason(seen)) for rule in RULES if rule.concerns(values)]
            urgency = sum(weight for weight, reason in applied if reason)
            reason = "; ".join(reason for _weight, reason in applied if reason)
            ranked.append((urgency, Seed(space.candidate(**values), reason)))
    return batch_seeds(space) + [seed for _urgency, seed in sorted(ranked, key=lambda pair: -pair[0])]
