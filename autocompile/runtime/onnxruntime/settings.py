"""The part of a plan that is specific to ONNX Runtime. Does not import torch."""

from __future__ import annotations

from typing import Literal

import msgspec

from autocompile.core.plan import Plan
from autocompile.core.serde import Record

Level = Literal["all", "extended"]


class Settings(Record, frozen=True, omit_defaults=True):
    """The settings of a plan. `graph_optimization` is how far the graph is rewritten, in the library's terms.

    `spinning` is whether its threads spin between calls, as they do by the library's default.
    """

    graph_optimization: Level = "all"
    spinning: bool = False


def settings_of(plan: Plan) -> Settings:
    """Return the plan's settings."""
    return msgspec.convert(plan.settings, Settings)
