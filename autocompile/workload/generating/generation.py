"""Text generation as a workload: the decode steps to tune, and texts to test generation as a whole."""

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
    """Return what was seen of a model as a workload. Raises NotTunable if that is not possible."""
    entry = generated.entry()
    decoding = decoding_of(generated.model, entry)
    return Generation(decoding, generated.samples(entry.capacity), generated.texts, entry)


def decoding_of(model: nn.Module, entry: GenerationEntry) -> Decoding:
    """Return the decode step of `model`, with the options with which it was called."""
    return Decoding(model, {name: ast.literal_eval(written) for name, written in entry.options.items()})
