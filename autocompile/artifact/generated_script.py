"""Applies a recommendation to the decode steps of an unchanged script that generates text."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from autocompile.artifact.fitting import AppliedScript, Fitting
from autocompile.artifact.integrity import open_artifact
from autocompile.artifact.load import load
from autocompile.artifact.options import check_served
from autocompile.core.service import Service
from autocompile.core.workload import GenerationEntry
from autocompile.workload.generating.replacing import generate_replaced

if TYPE_CHECKING:  # both import transformers, which the script does when it generates
    from autocompile.artifact.module import Status
    from autocompile.artifact.texts import Texts


class GeneratedScript(AppliedScript["_Applied"]):
    """Serves those calls of transformers' `generate` in a script that use the model that was tuned.

    Raises InvalidRecommendation and InvalidArtifact as `load` does.
    """

    def __init__(self, directory: Path) -> None:
        manifest = open_artifact(directory, None).manifest
        check_served(manifest)
        assert manifest.generation is not None, "a script that generates text"
        entry = manifest.generation
        self._fitting = Fitting(
            manifest, lambda model: _Applied(directory, model, entry), as_tuned=lambda model: _decoding(model, entry)
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

    def __init__(self, directory: Path, model: nn.Module, entry: GenerationEntry) -> None:
        from autocompile.artifact.texts import Texts  # noqa: PLC0415  imports transformers

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RuntimeWarning)
            decode = load(directory, _decoding(model, entry))
        self._told = tuple(dict.fromkeys(str(one.message) for one in caught))
        self._decode, self._name = decode, type(model).__name__
        self.texts: Texts = Texts(model, decode, entry)

    def service(self) -> Service:
        """Return the statistics so far."""
        status: Status = self._decode.status
        texts = self.texts
        rate = f"{texts.texts:,} texts, {texts.tokens / texts.seconds:,.0f} tokens a second" if texts.seconds else ""
        return Service(
            module=self._name,
            label=status.label,
            calls=status.calls,
            first_s=texts.first_s,
            mean_ms=texts.mean_ms,
            left={**texts.left, **{one.reason: one.calls for one in status.fallbacks}},
            notes=(*filter(None, [rate]), *self._told, *status.notes),
            kind="generation",
        )


def _decoding(model: nn.Module, entry: GenerationEntry) -> nn.Module:
    from autocompile.workload.generating.generation import decoding_of  # noqa: PLC0415  imports transformers

    return decoding_of(model, entry)
