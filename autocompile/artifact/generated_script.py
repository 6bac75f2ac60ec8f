"""Applies a recommendation to the decode steps and prompts of an unchanged script that generates text."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from autocompile.artifact.fitting import AppliedScript, Fitting
from autocompile.artifact.integrity import open_artifact, prompts_directory
from autocompile.artifact.load import load
from autocompile.artifact.options import check_served
from autocompile.core.errors import InvalidRecommendation
from autocompile.core.service import Service
from autocompile.core.workload import GenerationEntry
from autocompile.workload.generating.replacing import generate_replaced

if TYPE_CHECKING:  # the last imports transformers, which the script does when it generates
    from autocompile.artifact.module import CompiledModule
    from autocompile.artifact.texts import Texts


class GeneratedScript(AppliedScript["_Applied"]):
    """Serves those calls of transformers' `generate` in a script that use the model that was tuned.

    Raises InvalidRecommendation and InvalidArtifact as `load` does.
    """

    def __init__(self, directory: Path) -> None:
        manifest = open_artifact(directory, None).manifest
        check_served(manifest)
        entry = manifest.generation
        assert entry is not None, "a script that generates text"
        if entry.part != "decode":
            said = "is only the part for prompts of a recommendation"
            raise InvalidRecommendation(said, where=str(directory), remedy=f"use {directory.parent}")
        if manifest.prompts:
            open_artifact(directory / prompts_directory(manifest.prompts), manifest.prompts)
        self._fitting = Fitting(
            manifest, lambda model: _Applied(directory, model), as_tuned=lambda model: _decoding(model, entry)
        )

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Serve calls of `generate` within the context."""
        with generate_replaced(self._generate):
            yield

    def _generate(self, model: nn.Module, arguments: dict[str, Any], made: Callable[..., Any]) -> Any:
        applied = self._fitting(model)
        return made(model, **arguments) if applied is None else applied.texts.generate(arguments, made)


class _Applied:
    """The recommendation, applied to one model that generates text."""

    def __init__(self, directory: Path, model: nn.Module) -> None:
        from autocompile.artifact.generating import texts_of  # noqa: PLC0415  imports transformers

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RuntimeWarning)
            self._loaded = load(directory, model)
        self._told = tuple(dict.fromkeys(str(one.message) for one in caught))
        self._name = type(model).__name__
        self.texts: Texts = texts_of(self._loaded)

    def service(self) -> Service:
        """Return the statistics so far."""
        status, texts = self._loaded.status, self.texts
        rate = f"{texts.texts:,} texts, {texts.tokens / texts.seconds:,.0f} tokens a second" if texts.seconds else ""
        return Service(
            module=self._name,
            label=status.label,
            calls=status.calls,
            first_s=texts.first_s,
            mean_ms=texts.mean_ms,
            left={one.reason: one.calls for one in status.fallbacks},
            notes=(*filter(None, [rate, _of_prompts(self._loaded.prompts)]), *self._told, *status.notes),
            kind="generation",
        )


def _decoding(model: nn.Module, entry: GenerationEntry) -> nn.Module:
    from autocompile.workload.generating.generation import decoding_of  # noqa: PLC0415  imports transformers

    return decoding_of(model, entry)


def _of_prompts(served: CompiledModule | None) -> str:
    """Return what served the prompts; "" if they were not tuned."""
    if served is None:
        return ""
    status = served.status
    calls = ", ".join(f"{count:,} by {runtime}" for runtime, count in status.calls.items())
    left = "".join(f"; {one.calls:,} not as recommended: {one.reason}" for one in status.fallbacks)
    return f"prompts as {status.label}: {calls or 'none'}{left}"
