"""Floor 5: what users call."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from autocompile.core.document import Document
from autocompile.core.errors import GoalUnmet, InvalidValue
from autocompile.core.export import Export
from autocompile.core.goal import Goal
from autocompile.core.progress import Silence
from autocompile.core.units import parse_duration
from autocompile.core.workload import Workload
from autocompile.profiling import USUAL_S, ReadableProfile, profile_workload
from autocompile.recommendation import Exporter, Recommendation
from autocompile.report.limits import unmet
from autocompile.report.progress import LiveProgress
from autocompile.runner.workers import parse_workers
from autocompile.scratch import Scratch
from autocompile.search.run import Settings
from autocompile.search.strategy import load_strategy
from autocompile.tuning import Request, Source, export, tune
from autocompile.workload.generating.asked import generation_by
from autocompile.workload.generating.spooling import spool_generation
from autocompile.workload.metric import spool_metric
from autocompile.workload.spool import kept_inputs, spool
from autocompile.workload.training.training import Training

if TYPE_CHECKING:  # imports transformers
    from autocompile.workload.generating.generation import Generation

_SAMPLES = "samples.pt"
OnUnmet = Literal["nearest", "error"]


def optimize(  # noqa: PLR0913
    model: Any,
    inputs: Any,
    budget: str | float | timedelta = "30m",
    *,
    calls: int | None = None,
    goal: Goal | None = None,
    strategy: str = "balanced",
    output: str | Path | None = None,
    storage: str | None = None,
    seed: int = 0,
    progress: bool = True,
    on_unmet: OnUnmet = "nearest",
    training: Training | None = None,
    workers: int | str = 1,
) -> Recommendation:
    """Find the fastest correct way to run `model` on `inputs`, or to train it, by measuring.

    Parameters: `model`, an nn.Module or a function; `inputs`, a tensor, a tuple of arguments, a dict of
    keywords, a list of such samples, whose distribution then counts, or a DataLoader; `budget`, wall time for all of
    it, as "90s", "30m", "1h30m", seconds or a timedelta; `calls`, over how many calls the compile cost
    is amortized (default: an hour of the baseline's calls); `goal`, that and what counts as correct, as
    an `autocompile.Goal`; `strategy`, a preset's name or a TOML file;
    `output`, a directory that keeps the study, so that a killed run goes on, and the recommendation;
    `storage`, an Optuna storage URL for the study instead, which runs on machines of one kind may share;
    `on_unmet`, what to do if nothing that was measured keeps the goal's constraints: return what comes nearest, its
    `document.is_feasible` false (`nearest`), or raise (`error`); `workers`, how many candidates compile side by side,
    measured one by one, or "gpu" or a cluster as "dask://host:8786" or "ray://host:10001", to try some on further GPUs
    or machines, too.

    Of a function that generates text with transformers, such as `model.generate`, the decode step is tuned, and calls
    are decode steps; `rec.module.generate` takes these as recommended.

    With `training`, an `autocompile.Training`, whole steps of it are tuned: `inputs` are batches as the loss takes
    them, in a list or a DataLoader, and calls are steps; the goal's `deploy` is "jit". `autocompile.prepare` trains as
    recommended, `rec.snippet()` is the step in plain torch. Model, gradients and optimizer stay as they are.

    Raises UsageError (see `autocompile.errors`) for whatever the caller can mend, before or at the
    first measurement; at the end, with `on_unmet="error"`, GoalUnmet, which holds the recommendation: the run is kept
    in `output` all the same. Ctrl-C ends the search, and what is known so far is returned, its
    `document.complete` false.
    """
    _check_choices(seed, on_unmet)
    goal, keeps = _goal_for(training, _given_goal(goal, calls)), Scratch()
    settings = Settings(goal, load_strategy(strategy), seed, storage)
    request = Request(
        settings=settings,
        budget_s=parse_duration(budget, where="budget"),
        output=str(output) if output is not None else None,
        keep=None if output is not None else str(keeps.path),
        metric=_spooled(goal.metric) if goal.metric else None,
        workers=parse_workers(workers),
    )
    given, samples = _Given.of(model, inputs, training), keeps.path / _SAMPLES
    with LiveProgress(request.budget_s) if progress else nullcontext(Silence()) as listener:
        document = tune(given.source(keep=samples), request, listener)
    exporter = _exporter(given.tuned, samples, settings, request.metric)
    found = Recommendation(document, given.model, Path(output or keeps.path), keeps, exporter)
    if on_unmet == "error" and not document.is_feasible:
        raise GoalUnmet(unmet(document), recommendation=found)
    return found


def _given_goal(goal: Goal | None, calls: int | None) -> Goal:
    """The goal, given whole or as calls. Raises InvalidValue if it is given twice."""
    if goal is not None and calls is not None:
        raise InvalidValue("is given twice", where="calls", remedy="give it in the goal only")
    return goal or Goal(calls=calls)


def profile(model: Any, inputs: Any, *, progress: bool = True, training: Training | None = None) -> ReadableProfile:
    """Find out what bounds `model` on `inputs`, where its time goes, and what stands in the compiler's way.

    Parameters: `model` and `inputs` as for `optimize`. A DataLoader, or anything else to iterate over, is
    looked at for its first 64 batches at most, and timed: a DataLoader with other settings too. With `training`, as for
    `optimize`, a step is profiled: its phases, what bounds each, and what holds its memory.

    It takes some 30 s and 20 calls of the model, in a child process; nothing is compiled. Printing the result
    shows it as text; its fields are plain data (see `autocompile.core.profile.Profile`), units in their names.
    Raises UsageError (see `autocompile.errors`) for whatever the caller can mend.
    """
    _check_training(training)
    with LiveProgress(USUAL_S) if progress else nullcontext(Silence()) as listener:
        return profile_workload(_Given.of(model, inputs, training).source(tries_loaders=True), listener)


def _check_choices(seed: int, on_unmet: OnUnmet) -> None:
    """Raises InvalidValue."""
    if not isinstance(seed, int):
        raise InvalidValue(f"{seed!r} is no whole number", where="seed", remedy="give one like 0")
    if on_unmet not in get_args(OnUnmet):
        raise InvalidValue(f"{on_unmet!r} is unknown", where="on_unmet", remedy="give 'nearest' or 'error'")


def _spooled(metric: Callable[[Any], float]) -> Callable[[Path], str]:
    def spooled(work: Path) -> str:
        path = work / "metric.pkl"
        spool_metric(metric, path)
        return str(path)

    return spooled


def _goal_for(training: Training | None, goal: Goal) -> Goal:
    """The goal, as it is for steps where these are tuned. Raises InvalidValue before anything is started."""
    _check_training(training)
    return goal if training is None else goal.for_training(training.batch)


def _check_training(training: Training | None) -> None:
    if training is not None and not isinstance(training, Training):
        raise InvalidValue(f"is a {type(training).__name__}", where="training", remedy="give an autocompile.Training")


@dataclass(frozen=True)
class _Given:
    """What was given to be tuned. Of a function that generates text, the `model` is what that generates with."""

    model: Any
    inputs: Any
    training: Training | None
    generation: Generation | None

    @staticmethod
    def of(model: Any, inputs: Any, training: Training | None) -> _Given:
        """With what is to be found out of a function."""
        generation = None if training else generation_by(model, inputs)
        return _Given(generation.model if generation else model, inputs, training, generation)

    @property
    def tuned(self) -> Any:
        """What is called in a trial."""
        return self.generation.decoding if self.generation else self.model

    def source(self, *, tries_loaders: bool = False, keep: Path | None = None) -> Source:
        """The workload; `keep`: where the samples are kept by themselves."""

        def source(_runner: object, directory: Path, _budget_s: float) -> Workload:
            if self.generation is not None:
                return spool_generation(self.generation, directory, keep=keep)
            model, inputs = self.model, self.inputs
            return spool(model, inputs, directory, tries_loaders=tries_loaders, keep=keep, training=self.training)

        return source


def _exporter(model: Any, samples: Path, settings: Settings, metric: Callable[[Path], str] | None) -> Exporter:
    """What exports the model as it is then, with the samples that were kept: inputs may come but once."""

    def exporter(
        document: Document, artifact: Path, to: str, directory: Path, budget: str | float | timedelta, progress: bool
    ) -> Export:
        request = Request(settings, parse_duration(budget, where="budget"), output=None, metric=metric)

        def source(_runner: object, spooled: Path, _budget_s: float) -> Workload:
            return spool(model, kept_inputs(samples), spooled, name=document.workload.name)

        with LiveProgress(request.budget_s) if progress else nullcontext(Silence()) as listener:
            return export(document, source, request, listener, to=to, directory=directory, where=artifact)

    return exporter
