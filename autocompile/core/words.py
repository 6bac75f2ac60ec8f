"""How the unit of work is called in texts, by the workload's kind."""

from __future__ import annotations

from typing import Literal

from autocompile.core.serde import Record

WorkloadKind = Literal["inference", "training", "closure", "generation", "prompt"]


class Words(Record, frozen=True):
    """The name of a unit of work (`one`, `many`), of its `input`, and phrases on its failure and on trying it."""

    one: str
    many: str
    input: str
    fails: str
    try_it: str

    def counted(self, number: float) -> str:
        """Return the singular or the plural, depending on the number."""
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
    "prompt": Words("prompt", "prompts", "prompts", "a prompt fails by itself", "call model.generate() yourself"),
}


CALLS = _WORDS["inference"]
# The kinds of work that train a model.
TRAINS: frozenset[WorkloadKind] = frozenset({"training", "closure"})


def words_of(kind: WorkloadKind) -> Words:
    """Return the words for a kind of workload."""
    return _WORDS[kind]
