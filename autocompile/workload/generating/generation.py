"""Generating text as a workload: the decode steps that are tuned, and the texts by which all of it is tried."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from autocompile.core.workload import GenerationEntry
from autocompile.workload.generating.decoding import Decoding
from autocompile.workload.generating.seen import Generated
from autocompile.workload.samples import Sample


@dataclass(frozen=True)
class Generation:
    """The `decoding` of a model, decode steps as `samples`, and `texts`: the arguments of calls of its `generate`."""

    decoding: Decoding
    samples: Sequence[Sample]
    texts: Sequence[Mapping[str, Any]]
    entry: GenerationEntry

    @property
    def model(self) -> nn.Module:
        """The model that generates."""
        return self.decoding.model


def generation_of(generated: Generated) -> Generation:
    """What was seen of a model, as a workload. Raises NotTunable where it cannot be one."""
    entry = generated.entry()
    decoding = decoding_of(generated.model, entry)
    return Generation(decoding, generated.samples(entry.capacity), generated.texts, entry)


def decoding_of(model: nn.Module, entry: GenerationEntry) -> Decoding:
    """The decode step of `model`, as it was seen to be called."""
    return Decoding(model, {name: ast.literal_eval(written) for name, written in entry.options.items()})
