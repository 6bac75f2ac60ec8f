"""The result of `autocompile.load` if generating was tuned: a module that generates text as recommended."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace
from torch import nn

from autocompile.artifact.integrity import Opened, open_artifact, prompts_directory
from autocompile.artifact.module import CompiledModule, Fallback, Status
from autocompile.artifact.options import Asked, preferred
from autocompile.artifact.texts import Part, Texts
from autocompile.core.manifest import Manifest
from autocompile.core.plan import EAGER, Plan
from autocompile.core.serving import AS_IT_IS, Serving
from autocompile.core.workload import GenerationEntry
from autocompile.workload.generating.decoding import Decoding
from autocompile.workload.generating.generation import decoding_of, prompting_of
from autocompile.workload.generating.prompting import Prompting

# Loads the artifact of one part of generating, from its directory, for a `Decoding` or a `Prompting`.
Load = Callable[[Path, Opened, nn.Module, Asked], CompiledModule]


class GeneratingModule(CompiledModule):
    """Generates text like the model that it was loaded with, each decode step, and each prompt, as recommended.

    Its methods, such as `generate`, run on a stand-in for the model, whose decode steps are served. `status` reports
    how they are served, and `status.fallbacks` which steps the model itself made. `prompts` is the module that serves
    prompts, with a `status` of its own, or None if prompts were not tuned. Calling this module calls the model.
    """

    prompts: CompiledModule | None

    def __init__(self, model: nn.Module, decode: CompiledModule, prompts: CompiledModule | None, texts: Texts) -> None:
        super().__init__(texts, model, decode._about, decode._tally)  # noqa: SLF001  it replaces the decode module
        vars(self).update(_texts=texts, prompts=prompts)

    @property
    def status(self) -> Status:
        """How decode steps are currently served."""
        left = tuple(Fallback(reason, count) for reason, count in vars(self)["_texts"].left.items())
        own = super().status
        return replace(own, fallbacks=(*own.fallbacks, *left))

    def _stand_in(self) -> Any:
        standing = vars(self)["_texts"].standing
        return self.model if standing is None else standing


def generating(model: nn.Module, directory: Path, opened: Opened, asked: Asked, load: Load) -> CompiledModule:
    """Return a module that generates with what `load` returns for decode steps and, if they were tuned, for prompts.

    If `model` is itself a `Decoding` or a `Prompting`, return what `load` returns for it.
    """
    entry = _entry_of(opened)
    if isinstance(model, Decoding | Prompting):
        return load(directory, opened, model, asked)
    if entry.part == "prompt":
        return load(directory, opened, prompting_of(model, entry), asked)
    usual, prompts, parts = torch.get_num_threads(), None, []  # each load may set another number of threads
    if opened.manifest.prompts:
        within = directory / prompts_directory(opened.manifest.prompts)
        prompts, part = _prompts(model, within, opened.manifest.prompts, asked, load)
        parts.append(part)
        torch.set_num_threads(usual)
    decode = load(directory, opened, decoding_of(model, entry), asked)
    steps = _decode_part(model, decode, opened.manifest, asked.calls)
    return GeneratingModule(model, decode, prompts, _Served(model, decode, steps, *parts, usual_threads=usual))


def _decode_part(model: nn.Module, decode: CompiledModule, manifest: Manifest, calls: int | None) -> Part:
    """Return the part for decode steps. If they are computed in eager mode, the model makes them.

    The `Decoding` of a model computes the same, but slower, because its cache is separate from that of the model.
    """
    entry, better = manifest.generation, preferred(manifest, calls)
    assert entry is not None, "an artifact for generating"
    recommended = manifest.plan if better is None else better.plan
    plan = Plan() if decode._server.label == EAGER else recommended  # noqa: SLF001
    if not plan.keeps_model:
        return Part(decode, entry, plan.threads)

    def step(**given: Any) -> Any:
        decode._tally.served(AS_IT_IS)  # noqa: SLF001
        return model(**given)

    return Part(step, entry, plan.threads, by_model=True)


def texts_of(loaded: CompiledModule) -> Texts:
    """Return what serves the texts of a module that `generating` returned."""
    return vars(loaded)["_texts"]  # type: ignore[no-any-return]


def _prompts(model: nn.Module, directory: Path, digest: str, asked: Asked, load: Load) -> tuple[CompiledModule, Part]:
    """Load the part for prompts."""
    opened = open_artifact(directory, digest)
    entry = _entry_of(opened)
    alike = dataclasses.replace(asked, digest=digest, calls=None)  # the number of calls is that of decode steps
    loaded = load(directory, opened, prompting_of(model, entry), alike)
    return loaded, Part(loaded, entry, opened.manifest.plan.threads)


def _entry_of(opened: Opened) -> GenerationEntry:
    entry = opened.manifest.generation
    assert entry is not None, "an artifact for generating"
    return entry


class _Served(Texts):
    """Texts whose parts are made by loaded modules."""

    def __init__(self, model: nn.Module, decode: CompiledModule, *parts: Part, usual_threads: int) -> None:
        super().__init__(model, *parts, usual_threads=usual_threads)
        self._server = decode._server  # noqa: SLF001

    @property
    def serving(self) -> Serving:  # type: ignore[override]
        """How a decode step is currently served."""
        return self._server.serving

    @property
    def label(self) -> str:  # type: ignore[override]
        """The configuration that serves decode steps."""
        return self._server.label
