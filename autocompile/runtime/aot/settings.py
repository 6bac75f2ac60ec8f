"""What is particular to a plan for AOTInductor. No torch."""

from __future__ import annotations

import msgspec

from autocompile.core.plan import Plan
from autocompile.core.serde import Record


class Settings(Record, frozen=True, omit_defaults=True):
    """The settings of a plan.

    `options`: the compiler's own, without those that a package cannot have. What the plan that it was made of asks for
    and a program cannot do: `frozen`, weights as constants; `padded`, calls filled up to a few sizes.
    """

    options: dict[str, str | int | bool] = {}
    frozen: bool = False
    padded: bool = False


def settings_of(plan: Plan) -> Settings:
    """The plan's settings."""
    return msgspec.convert(plan.settings, Settings)
