"""Text generation as workloads: decode steps and prompts to tune, and texts to test generation as a whole."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace
from torch import nn

from autocompile.core.workload import GenerationEntry
from autocompile.workload.generating.decoding import Decoding
from autocompile.workload.generating.prompting import Prompting
from autocompile.workload.generating.seen import Generated
from autocompile.workload.samples import Sample


@dataclass(frozen=True)
class Prompts:
    """The call of a model for a prompt, and such calls as `samples`."""

    prompting: Prompting
    samples: Sequence[Sample]
    entry: GenerationEntry


@dataclass(frozen=True)
class Generation:
    """The `decoding` of a model, decode steps as `samples`, and `texts`: the arguments of calls of its `generate`.

    `prompts` is None if prompts take little time, or if the calls for them cannot be tuned.
    """

    decoding: Decoding
    samples: Sequence[Sample]
    texts: Sequence[Mapping[str, Any]]
    entry: GenerationEntry
    prompts: Prompts | None = None

    @property
    def model(self) -> nn.Module:
        """The model that generates."""
        return self.decoding.model


def generation_of(generated: Generated) -> Generation:
    """Return what was seen of a model as a workload. Raises NotTunable if that is not possible."""
    entry = generated.entry()
    decoding = decoding_of(generated.model, entry)
    return Generation(
        decoding, generated.samples(entry.capacity), generated.texts, entry, _prompts_of(generated, entry)
    )


def _prompts_of(generated: Generated, entry: GenerationEntry) -> Prompts | None:
    if generated.prompts_left:
        return None
    samples, padded = generated.prompts.samples()
    own = replace(entry, part="prompt", options=generated.prompts.options or {}, padded=padded)
    return Prompts(prompting_of(generated.model, own), samples, own)


def decoding_of(model: nn.Module, entry: GenerationEntry) -> Decoding:
    """Return the decode step of `model`, with the options with which it was called."""
    return Decoding(model, _options(entry))


def prompting_of(model: nn.Module, entry: GenerationEntry) -> Prompting:
    """Return the call of `model` for a prompt, with the options with which it was called."""
    return Prompting(model, entry.layers, _options(entry))


def _options(entry: GenerationEntry) -> dict[str, Any]:
    return {name: ast.literal_eval(written) for name, written in entry.options.items()}
