"""What the unit of work is called in texts, by the workload's kind: one table."""

from __future__ import annotations

from typing import Literal

from autocompile.core.serde import Record

WorkloadKind = Literal["inference", "training", "closure", "generation"]


class Words(Record, frozen=True):
    """A unit of work (`one`, `many`), what it is done on (`input`), that it fails, and how to try it by oneself."""

    one: str
    many: str
    input: str
    fails: str
    try_it: str

    def counted(self, number: float) -> str:
        """The noun that goes with a number."""
        return self.one if number == 1 else self.many


_WORDS: dict[WorkloadKind, Words] = {
    "inference": Words("call", "calls", "inputs", "the model fails on its own inputs", "call model(*inputs) yourself"),
    "training": Words(
        "step", "steps", "batches", "a step of training fails on its own batches", "run loss(model, batch).backward()"
    ),
    "closure": Words(
        "closure call",
        "closure calls",
        "batches",
        "a call of the closure fails on its own batches",
        "run loss(model, batch).backward()",
    ),
    "generation": Words(
        "decode step", "decode steps", "decode steps", "a decode step fails by itself", "call model.generate() yourself"
    ),
}


CALLS = _WORDS["inference"]
# In which a model is trained, whatever the unit is.
TRAINS: frozenset[WorkloadKind] = frozenset({"training", "closure"})


def words_of(kind: WorkloadKind) -> Words:
    """What is said of such workloads."""
    return _WORDS[kind]
