"""What only ONNX Runtime can vary. No torch."""

from __future__ import annotations

from msgspec.structs import replace

from autocompile.core.candidate import Value
from autocompile.core.plan import Plan
from autocompile.space.dimension import Choice, Dimension
from autocompile.space.surroundings import Surroundings

NAME = "onnxruntime"


def _choices(around: Surroundings) -> tuple[Choice, ...]:
    reason = "" if around.has_conv else "without convolutions it is the same program"
    if around.device_type != "cpu":
        reason = "the layout is rewritten on CPUs only"
    return Choice(value="all"), Choice(value="extended", unavailable=reason)


def _fold(plan: Plan, value: Value, _around: Surroundings) -> Plan:
    return plan if value == "all" else replace(plan, settings={**plan.settings, "graph_optimization": value})


# The blocked layout pads channels to a multiple of the vector width, which costs those that have another number.
GRAPH_OPTIMIZATION = Dimension(
    name="graph_optimization",
    meaning="how far the graph is rewritten: with convolutions in a blocked layout (all), or not (extended)",
    choices=_choices,
    fold=_fold,
)
DIMENSIONS = (GRAPH_OPTIMIZATION,)
