"""What a candidate means: everything that is done to the model, and nothing else."""

from __future__ import annotations

import hashlib

from autocompile.core.buckets import Buckets
from autocompile.core.serde import Record, to_json

Option = str | int | bool


class AxisRange(Record, frozen=True):
    """An axis of an argument (the `leaf` among all flattened ones) whose size varies from `low` to `high`."""

    leaf: int
    axis: int
    low: int
    high: int


class Plan(Record, frozen=True):
    """How to run the model. Two candidates with equal plans build the same program.

    `backend`: a compiler's name, or "" for eager. `options`: the compiler's own, sorted by key.
    `dynamic`: as `torch.compile` takes it; None lets it decide. `scope`: paths of the submodules that
    are compiled in place, or () for the whole model; `left_eager`: of those that the compiler is to leave
    alone. `ranges`: axes that are marked as varying before anything is compiled for them. `buckets`: what
    calls are filled up to, or None. `autocast`: the reduced dtype, or "". `memory_format`: `channels_last`,
    or "" to leave it. `threads`: CPU threads within an operator, or 0 to leave torch's own. `batch`: samples
    in a call, or 0 for as many as were given.
    """

    backend: str = ""
    options: dict[str, Option] = {}
    dynamic: bool | None = None
    scope: tuple[str, ...] = ()
    left_eager: tuple[str, ...] = ()
    ranges: tuple[AxisRange, ...] = ()
    buckets: Buckets | None = None
    autocast: str = ""
    memory_format: str = ""
    threads: int = 0
    batch: int = 0

    @property
    def compiles(self) -> bool:
        """Whether anything is compiled at all."""
        return bool(self.backend)

    @property
    def key(self) -> str:
        """A short digest; equal plans have equal keys, on every machine."""
        return hashlib.sha256(to_json(self)).hexdigest()[:16]
