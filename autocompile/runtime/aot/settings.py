"""The part of a plan that is specific to AOTInductor. Does not import torch."""

from __future__ import annotations

import msgspec

from autocompile.core.plan import Plan
from autocompile.core.serde import Record
from autocompile.runtime.compiler_options import Option

_GRAPHS = "triton.cudagraphs"


class Settings(Record, frozen=True, omit_defaults=True):
    """The settings of a plan. `options` are the compiler's own, sorted by key."""

    options: dict[str, Option] = {}

    @property
    def is_frozen(self) -> bool:
        """Whether the weights are constants of the program."""
        return bool(self.options.get("freezing"))

    @property
    def is_captured(self) -> bool:
        """Whether its calls are replayed as a CUDA graph."""
        return bool(self.options.get(_GRAPHS))

    @property
    def compiled_with(self) -> dict[str, Option]:
        """The options for the compiler. CUDA graphs are left out, because autocompile captures them itself."""
        return {name: value for name, value in self.options.items() if name != _GRAPHS}


def settings_of(plan: Plan) -> Settings:
    """Return the plan's settings."""
    return msgspec.convert(plan.settings, Settings)
