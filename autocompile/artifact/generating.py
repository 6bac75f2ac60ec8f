"""The result of `autocompile.load` if a decode step was tuned: a module that generates text with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace
from torch import nn

from autocompile.artifact.module import CompiledModule, Fallback, Status
from autocompile.artifact.texts import Texts
from autocompile.core.serving import Serving
from autocompile.core.workload import GenerationEntry
from autocompile.workload.generating.decoding import Decoding
from autocompile.workload.generating.generation import decoding_of


class GeneratingModule(CompiledModule):
    """Generates text like the model that it was loaded with, each decode step as recommended.

    Its methods, such as `generate`, run on a stand-in for the model, whose decode steps are served. `status` reports
    how they are served, and `status.fallbacks` which steps the model itself made. Calling this module calls the model.
    """

    def __init__(self, decode: CompiledModule, model: nn.Module, entry: GenerationEntry) -> None:
        texts = _Served(model, decode, entry)
        super().__init__(texts, model, decode._about, decode._tally)  # noqa: SLF001  it replaces the decode module
        vars(self)["_texts"] = texts

    @property
    def status(self) -> Status:
        """How decode steps are currently served."""
        left = tuple(Fallback(reason, count) for reason, count in vars(self)["_texts"].left.items())
        own = super().status
        return replace(own, fallbacks=(*own.fallbacks, *left))

    def _stand_in(self) -> Any:
        standing = vars(self)["_texts"].standing
        return self.model if standing is None else standing


def generating(model: nn.Module, entry: GenerationEntry, load: Callable[[nn.Module], CompiledModule]) -> CompiledModule:
    """Return a module that generates with the decode step that `load` returns, or that decode step for a `Decoding`."""
    if isinstance(model, Decoding):
        return load(model)
    return GeneratingModule(load(decoding_of(model, entry)), model, entry)


class _Served(Texts):
    """Texts whose decode steps are made by a loaded module."""

    def __init__(self, model: nn.Module, decode: CompiledModule, entry: GenerationEntry) -> None:
        super().__init__(model, decode, entry)
        self._server = decode._server  # noqa: SLF001

    @property
    def serving(self) -> Serving:  # type: ignore[override]
        """How a decode step is currently served."""
        return self._server.serving

    @property
    def label(self) -> str:  # type: ignore[override]
        """The configuration that serves decode steps."""
        return self._server.label
