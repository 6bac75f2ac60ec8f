"""Floor 5: the verdict as users hold it: the document, together with the model it is about."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from autocompile.artifact.directory import write_recommendation
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

# Writes the model of a document, whose artifact lies in a directory, as a file of a format into another, within a
# budget, showing progress or not.
Exporter = Callable[[Document, Path, str, Path, str | float | timedelta, bool], Export]


class Recommendation:
    """The fastest correct way to run a model that was found, with its reasons.

    `document` is all of it as plain data; `module` is ready to be called.
    """

    def __init__(
        self, document: Document, model: Any, artifact: Path, keeps: object = None, exporter: Exporter | None = None
    ) -> None:
        """`artifact` is the directory where what was packed lies; `keeps` is held as long as it is needed there.

        `exporter` writes the model as a file.
        """
        self.document = document
        self._model, self._artifact, self._keeps, self._exporter = model, artifact, keeps, exporter

    @property
    def config(self) -> dict[str, Value]:
        """The winner's value for every dimension."""
        return self.document.winner.config

    @property
    def speedup(self) -> Estimate:
        """Baseline latency over the winner's, with its 95% interval; 1 is no gain."""
        assert self.document.winner.speedup is not None
        return self.document.winner.speedup

    @property
    def trials(self) -> tuple[TrialEntry, ...]:
        """All trials: the measured by rank, then the failed."""
        return self.document.trials

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The journal: what was skipped, seeded, stopped and preferred, and why."""
        return self.document.decisions

    @cached_property
    def module(self) -> CompiledModule:
        """The model served by the artifact, sharing its weights, as `autocompile.load` gives it.

        Sets the process's number of CPU threads if the recommendation has one. Raises InvalidRecommendation if it is
        for training.
        """
        return load(self._artifact, self._model)

    def explain(self) -> str:
        """The run in a dozen lines, each claim with its number."""
        return "\n".join(story(self.document))

    def snippet(self) -> str:
        """Plain torch code that reproduces the winner without this library."""
        return self.document.snippet

    def save(self, directory: str | Path) -> None:
        """Keep it for `autocompile.load`. Raises OutputConflict if something else lies there."""
        write_recommendation(Path(directory), self.document, self._artifact, as_page(self.document))

    def export(
        self, to: str, directory: str | Path, *, budget: str | float | timedelta = "10m", progress: bool = True
    ) -> Export:
        """Write the model as a file that runs without this library.

        `to` is a format that `autocompile export --help` lists.

        `directory` gets the file, an example of its use, and a README that tells what it takes and gives and how it was
        verified. The file has the weights that the model has now. It is compared like every candidate, within `budget`,
        a wall time as for `optimize`. Raises UsageError: InvalidValue for a format that is not to be had here,
        OutputConflict if something else lies there, NotExportable where the model cannot be had in that format, or the
        file is wrong; InvalidRecommendation if the model has been changed since.
        """
        if self.document.workload.training:
            raise NotExportable(
                "a training is no model that could be exported", remedy="tune the model without training"
            )
        if self._exporter is None:
            raise InvalidRecommendation(
                "does not know its inputs any more", where="export", remedy="use `autocompile export` with the script"
            )
        return self._exporter(self.document, self._artifact, to, Path(directory), budget, progress)

    def __str__(self) -> str:
        return as_brief(self.document)

    def __repr__(self) -> str:
        winner = self.document.winner
        return f"<Recommendation for {self.document.workload.name}: {winner.label}, {self.speedup.value:.2f}x>"

    def _repr_html_(self) -> str:
        return as_html(self.document)
