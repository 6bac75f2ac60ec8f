"""How calls come to be served: by which runtime, and what that does to start."""

from __future__ import annotations

from typing import Literal

from autocompile.core.plan import EAGER
from autocompile.core.serde import Record

# `load` starts a program that was compiled ahead, `cache` compiles with what the compiler left in its cache, `compile`
# compiles at the first call, `none` has nothing to prepare.
Start = Literal["load", "cache", "compile", "none"]

_WORDS: dict[Start, str] = {"load": "", "none": "", "cache": " from its cache", "compile": " at the first call"}


class Serving(Record, frozen=True):
    """A runtime, and how it starts."""

    runtime: str
    start: Start

    @property
    def is_packed(self) -> bool:
        """Whether an artifact of it holds more than the configuration."""
        return self.start in {"load", "cache"}

    @property
    def name(self) -> str:
        """As a name of files and caches: `aot`, `inductor-cache`."""
        return self.runtime if self.start in {"load", "none"} else f"{self.runtime}-{self.start}"

    def __str__(self) -> str:
        return f"{self.runtime}{_WORDS[self.start]}"


AS_IT_IS = Serving(EAGER, "none")
