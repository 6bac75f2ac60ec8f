"""One point of the space."""

from __future__ import annotations

from autocompile.core.serde import Record

Value = str | int | bool


class Candidate(Record, frozen=True):
    """A value for every dimension, in the order of the dimensions; equal values, equal candidates."""

    values: dict[str, Value]

    def __getitem__(self, dimension: str) -> Value:
        return self.values[dimension]
