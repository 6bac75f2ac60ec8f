"""How calls are served: by which runtime, and how it starts."""

from __future__ import annotations

from typing import Literal

from autocompile.core.plan import EAGER
from autocompile.core.serde import Record

# `load`: load a program that was compiled ahead of time. `cache`: compile with the help of a packed compiler cache.
# `compile`: compile at the first call. `none`: there is nothing to compile.
Start = Literal["load", "cache", "compile", "none"]

_WORDS: dict[Start, str] = {"load": "", "none": "", "cache": " from its cache", "compile": " at the first call"}


class Serving(Record, frozen=True):
    """A runtime, and how it starts."""

    runtime: str
    start: Start

    @property
    def is_packed(self) -> bool:
        """Whether an artifact contains more than the configuration."""
        return self.start in {"load", "cache"}

    @property
    def name(self) -> str:
        """A name for files and caches: `aot`, `inductor-cache`."""
        return self.runtime if self.start in {"load", "none"} else f"{self.runtime}-{self.start}"

    def __str__(self) -> str:
        return f"{self.runtime}{_WORDS[self.start]}"


AS_IT_IS = Serving(EAGER, "none")
