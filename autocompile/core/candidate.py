"""A candidate: one point of the search space."""

from __future__ import annotations

from autocompile.core.serde import Record

Value = str | int | bool


class Candidate(Record, frozen=True):
    """A value for every dimension, in the order of the dimensions. Candidates with equal values are equal."""

    values: dict[str, Value]

    def __getitem__(self, dimension: str) -> Value:
        return self.values[dimension]
