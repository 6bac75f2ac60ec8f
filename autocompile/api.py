"""Floor 5: the functions that users call."""

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
    """Find the fastest correct way to run `model` on `inputs`, or to train it, by measuring candidates.

    Ctrl-C stops the search. The best result so far is then returned, with `document.complete` set to False.

    If `model` is a function that generates text with transformers, such as `model.generate`, its decode step is tuned.
    Calls are then decode steps, and `rec.module.generate` generates text with the recommended decode step.

    If `training` is given, whole training steps are tuned, and calls are steps. `autocompile.prepare` applies the
    recommendation, and `rec.snippet()` returns the step as plain PyTorch code. Tuning changes neither the model, nor
    its gradients, nor the optimizer.

    Args:
        model: An `nn.Module` or a function.
        inputs: A tensor, a tuple of positional arguments, a dict of keyword arguments, an object with tensors and a
            method `to` (such as a batch of graphs), a list of such samples, or a DataLoader. How often a kind of
            sample occurs determines its weight. With `training`, the batches that the loss takes, in a list or a
            DataLoader.
        budget: Wall time for the whole run: "90s", "30m", "1h30m", a number of seconds, or a `timedelta`.
        calls: The number of calls over which the compile time is amortized. The default is the number of calls that
            the baseline makes in one hour. Give either `calls` or `goal`.
        goal: What to optimize for, under which constraints, and which outputs count as correct. With `training`, its
            `deploy` is always "jit".
        strategy: The name of a preset ("quick", "balanced", "thorough"), or the path of a TOML file.
        output: A directory that keeps the study and the recommendation. A run that was killed resumes from it.
        storage: An Optuna storage URL for the study, in place of an SQLite file in `output`. Several runs may share
            it, on machines of one kind.
        seed: The seed of the sampler and of the random inputs.
        progress: Whether to show progress on standard error.
        on_unmet: What to do if no measured candidate meets the goal's constraints. "nearest" returns the candidate
            that comes nearest, with `document.is_feasible` set to False; "error" raises GoalUnmet.
        training: How the model is trained, if training is to be tuned.
        workers: How many candidates are compiled in parallel on this machine; they are still measured one at a time.
            Or where else to try candidates: "gpu" for the other GPUs of this machine, or a cluster, such as
            "dask://host:8786" or "ray://host:10001".

    Returns:
        The recommendation. It holds the verdict, its reasons, and the model as recommended.

    Raises:
        UsageError: If something is wrong that the caller can fix. It is raised before or at the first measurement.
        GoalUnmet: If `on_unmet` is "error" and no measured candidate meets the constraints. The exception holds the
            recommendation, and `output` keeps the run.
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
    """Return the goal, or a goal with this number of calls. Raises InvalidValue if both are given."""
    if goal is not None and calls is not None:
        raise InvalidValue("cannot be combined with goal", where="calls", remedy="use goal=Goal(calls=...)")
    return goal or Goal(calls=calls)


def profile(model: Any, inputs: Any, *, progress: bool = True, training: Training | None = None) -> ReadableProfile:
    """Find out what bounds `model` on `inputs`, where its time goes, and what prevents the compiler from helping.

    Profiling takes about 30 s and 20 calls of the model, in a child process. Nothing is compiled.

    Args:
        model: As for `optimize`.
        inputs: As for `optimize`. From a DataLoader, or any other iterable, at most the first 64 batches are read and
            timed. A DataLoader is also timed with other settings.
        progress: Whether to show progress on standard error.
        training: As for `optimize`. A training step is then profiled: its phases, what bounds each of them, and what
            uses its memory.

    Returns:
        The profile. Printing it shows it as text. Its fields are plain data, with units in their names; see
        `autocompile.core.profile.Profile`.

    Raises:
        UsageError: If something is wrong that the caller can fix; see `autocompile.errors`.
    """
    _check_training(training)
    with LiveProgress(USUAL_S) if progress else nullcontext(Silence()) as listener:
        return profile_workload(_Given.of(model, inputs, training).source(tries_loaders=True), listener)


def _check_choices(seed: int, on_unmet: OnUnmet) -> None:
    """Raise InvalidValue if the seed or `on_unmet` cannot be used."""
    if not isinstance(seed, int):
        raise InvalidValue(f"{seed!r} is not an integer", where="seed", remedy="give an integer, such as 0")
    if on_unmet not in get_args(OnUnmet):
        raise InvalidValue(f"{on_unmet!r} is unknown", where="on_unmet", remedy="give 'nearest' or 'error'")


def _spooled(metric: Callable[[Any], float]) -> Callable[[Path], str]:
    def spooled(work: Path) -> str:
        path = work / "metric.pkl"
        spool_metric(metric, path)
        return str(path)

    return spooled


def _goal_for(training: Training | None, goal: Goal) -> Goal:
    """Return the goal, adapted to steps if training is tuned. Raises InvalidValue before anything is started."""
    _check_training(training)
    return goal if training is None else goal.for_training(training.batch)


def _check_training(training: Training | None) -> None:
    if training is not None and not isinstance(training, Training):
        raise InvalidValue(f"is a {type(training).__name__}", where="training", remedy="give an autocompile.Training")


@dataclass(frozen=True)
class _Given:
    """What the caller asked to tune. For a function that generates text, `model` is the model that it uses."""

    model: Any
    inputs: Any
    training: Training | None
    generation: Generation | None

    @staticmethod
    def of(model: Any, inputs: Any, training: Training | None) -> _Given:
        """Detect whether `model` is a function that generates text, and return what is to be tuned."""
        generation = None if training else generation_by(model, inputs)
        return _Given(generation.model if generation else model, inputs, training, generation)

    @property
    def tuned(self) -> Any:
        """The module or function that a trial calls."""
        return self.generation.decoding if self.generation else self.model

    def source(self, *, tries_loaders: bool = False, keep: Path | None = None) -> Source:
        """Return the source of the workload. `keep`: the file that additionally gets the samples."""

        def source(_runner: object, directory: Path, _budget_s: float) -> Workload:
            if self.generation is not None:
                return spool_generation(self.generation, directory, keep=keep)
            model, inputs = self.model, self.inputs
            return spool(model, inputs, directory, tries_loaders=tries_loaders, keep=keep, training=self.training)

        return source


def _exporter(model: Any, samples: Path, settings: Settings, metric: Callable[[Path], str] | None) -> Exporter:
    """Return a function that exports the model in its state at that time.

    It uses the samples that were kept, because the user's inputs may be an iterator that is exhausted by then.
    """

    def exporter(
        document: Document, artifact: Path, to: str, directory: Path, budget: str | float | timedelta, progress: bool
    ) -> Export:
        request = Request(settings, parse_duration(budget, where="budget"), output=None, metric=metric)

        def source(_runner: object, spooled: Path, _budget_s: float) -> Workload:
            return spool(model, kept_inputs(samples), spooled, name=document.workload.name)

        with LiveProgress(request.budget_s) if progress else nullcontext(Silence()) as listener:
            return export(document, source, request, listener, to=to, directory=directory, where=artifact)

    return exporter
