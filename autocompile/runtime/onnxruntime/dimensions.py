"""The dimensions that only ONNX Runtime has. Does not import torch."""

from __future__ import annotations

from msgspec.structs import replace

from autocompile.core.candidate import Value
from autocompile.core.plan import Plan
from autocompile.space.dimension import Choice, Dimension
from autocompile.space.surroundings import Surroundings

NAME = "onnxruntime"


def _choices(around: Surroundings) -> tuple[Choice, ...]:
    reason = "" if around.has_conv else "the model has no convolutions, so the program would be the same"
    if around.device_type != "cpu":
        reason = "the layout is changed on CPUs only"
    return Choice(value="all"), Choice(value="extended", unavailable=reason)


def _fold(plan: Plan, value: Value, _around: Surroundings) -> Plan:
    return plan if value == "all" else replace(plan, settings={**plan.settings, "graph_optimization": value})


# The blocked layout pads channels to a multiple of the vector width, which makes other numbers of channels slower.
GRAPH_OPTIMIZATION = Dimension(
    name="graph_optimization",
    meaning="how far the graph is rewritten: with convolutions in a blocked layout (all), or not (extended)",
    choices=_choices,
    fold=_fold,
)


def _spinning_choices(around: Surroundings) -> tuple[Choice, ...]:
    reason = "" if around.device_type == "cpu" else "the device's own threads do the work"
    if around.cores < 2:
        reason = "there is only one core, so there is no other thread to wake"
    if around.in_script:
        reason = "the script does other work between calls, from which threads that spin would take CPU time"
    return Choice(value=False), Choice(value=True, unavailable=reason)


def _fold_spinning(plan: Plan, value: Value, _around: Surroundings) -> Plan:
    return replace(plan, settings={**plan.settings, "spinning": True}) if value else plan


SPINNING = Dimension(
    name="spinning",
    meaning="whether ONNX Runtime's threads spin between calls: the next call starts sooner, but other work is slower",
    choices=_spinning_choices,
    fold=_fold_spinning,
    applies=lambda values: values["threads"] != 1,
    after="threads",
)
DIMENSIONS = (GRAPH_OPTIMIZATION, SPINNING)
