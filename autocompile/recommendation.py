"""Floor 5: the object that `optimize` returns: the document, together with the model that was tuned."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from autocompile.artifact.directory import check_room, read_document, write_recommendation
from autocompile.artifact.load import load
from autocompile.artifact.module import CompiledModule
from autocompile.core.candidate import Value
from autocompile.core.decision import Decision
from autocompile.core.document import Document, TrialEntry
from autocompile.core.errors import InvalidRecommendation, NotExportable
from autocompile.core.estimate import Estimate
from autocompile.core.export import Export
from autocompile.report.brief import as_brief
from autocompile.report.html import as_html, as_page
from autocompile.report.story import story

# Arguments: the document, the directory of its artifact, the format, the target directory, the budget, and whether to
# show progress.
Exporter = Callable[[Document, Path, str, Path, str | float | timedelta, bool], Export]


class Recommendation:
    """The fastest correct way found to run a model, with the reasons for it.

    `document` holds everything as plain data; `module` is ready to be called.
    """

    def __init__(
        self, document: Document, model: Any, artifact: Path, keeps: object = None, exporter: Exporter | None = None
    ) -> None:
        """Create a recommendation.

        Args:
            document: Everything that is known about the run.
            model: The model that was tuned.
            artifact: The directory of the packed files.
            keeps: An object that must stay alive as long as the directory is needed.
            exporter: Writes the model as a file; None if the recommendation cannot export.
        """
        self.document = document
        self._model, self._artifact, self._keeps, self._exporter = model, artifact, keeps, exporter

    @property
    def config(self) -> dict[str, Value]:
        """The winner's value for every dimension."""
        return self.document.winner.config

    @property
    def speedup(self) -> Estimate:
        """The baseline's latency divided by the winner's, with its 95% interval; 1 means no gain."""
        assert self.document.winner.speedup is not None
        return self.document.winner.speedup

    @property
    def trials(self) -> tuple[TrialEntry, ...]:
        """All trials: measured trials by rank, then failed ones."""
        return self.document.trials

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The journal: what was skipped, seeded, stopped and preferred, and why."""
        return self.document.decisions

    @cached_property
    def module(self) -> CompiledModule:
        """The model as recommended, as `autocompile.load` returns it. It shares the model's weights.

        The first access sets the process's number of CPU threads, if the recommendation has one. Raises
        InvalidRecommendation if training was tuned.
        """
        return load(self._artifact, self._model)

    def explain(self) -> str:
        """Return the run in about a dozen sentences, each claim with its number."""
        return "\n".join(story(self.document))

    def snippet(self) -> str:
        """Return plain PyTorch code that reproduces the winner without this library."""
        return self.document.snippet

    def save(self, directory: str | Path) -> None:
        """Write the recommendation to `directory`, for `autocompile.load` or `autocompile.prepare`.

        Raises OutputConflict if the directory contains anything else.
        """
        into, prompts = Path(directory), self.document.prompts
        check_room(into, self.document)
        if prompts and prompts.directory:
            own = self._artifact / prompts.directory
            document = read_document(own)
            write_recommendation(into / prompts.directory, document, own, as_page(document))
        write_recommendation(into, self.document, self._artifact, as_page(self.document))

    def export(
        self, to: str, directory: str | Path, *, budget: str | float | timedelta = "10m", progress: bool = True
    ) -> Export:
        """Write the model as a file that runs without this library.

        The file contains the model's current weights. Its outputs are verified like those of every candidate.

        Args:
            to: The format, one of those that `autocompile export --help` lists.
            directory: Gets the file, an example of its use, and a README on inputs, outputs and verification.
            budget: Wall time for the export, as for `optimize`.
            progress: Whether to show progress on standard error.

        Returns:
            A description of the file, and how it was verified.

        Raises:
            InvalidValue: If the format is not available here.
            OutputConflict: If the directory contains anything else.
            NotExportable: If the model cannot be written in that format, or if the file computes wrong outputs.
            InvalidRecommendation: If the model has changed since it was tuned.
        """
        if self.document.workload.training:
            raise NotExportable(
                "training was tuned, and only a model can be exported", remedy="tune the model without training"
            )
        if self._exporter is None:
            raise InvalidRecommendation(
                "the inputs are no longer available", where="export", remedy="use `autocompile export` with the script"
            )
        return self._exporter(self.document, self._artifact, to, Path(directory), budget, progress)

    def __str__(self) -> str:
        return as_brief(self.document)

    def __repr__(self) -> str:
        winner = self.document.winner
        return f"<Recommendation for {self.document.workload.name}: {winner.label}, {self.speedup.value:.2f}x>"

    def _repr_html_(self) -> str:
        return as_html(self.document)
