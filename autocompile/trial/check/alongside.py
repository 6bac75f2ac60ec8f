"""Check whether a candidate keeps learning as eager does: both train some dozens of steps from the same start.

A check of single steps misses an error in every fifth step, and an error that is smaller than a rounding in each step
but adds up. Two curves are compared over their last quarter: the loss, and the norm of all parameters, which shows
missing weight decay earlier than the loss. Correct steps diverge as well, in some trainings chaotically. To find out
how far, eager is trained with differences that are only roundings: in the precision of the plan, and with parameters
that are moved by up to a rounding before every step. If the optimizer evaluates the loss itself, as LBFGS does, each
side makes its own sequence of evaluations, and the curves are over the calls of the closure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, variance

from msgspec import structs

from autocompile.core.outcome import Learned
from autocompile.core.units import format_beyond
from autocompile.core.words import words_of
from autocompile.workload.samples import Sample
from autocompile.workload.training.curve import Curve, curve_of
from autocompile.workload.training.step import TrainingStep

STEPS = 32
# With fewer steps, a quarter of them shows no more than single steps do.
_LEAST = 8
# At most this many batches are used, so that each comes often enough to show how its loss scatters.
_BATCHES = 4
# How many eager runs are trained with parameters moved by a rounding; how many more before a candidate is rejected;
# and, if the candidate draws other random numbers, how many seeds each side is trained from.
_SHAKEN, _MORE, _SEEDS = 2, 6, 4
# The first two are in units of eager's largest deviation. Correct steps (fused, compiled, in another memory format) of
# a transformer, a CNN, an LSTM and an MLP deviated by 2.3 times as much or less. But in float32, where deviations come
# only from roundings and their growth, one eager run deviated 20 times as much as another. The third is relative to the
# figure itself.
_MULTIPLE, _MULTIPLE_REDUCED, _FLOOR = 10.0, 4.0, 1e-5
# In standard errors. Four seeds on each side leave six degrees of freedom: this is exceeded by chance once in 5,000.
_FURTHEST = 8.0
# The allowed ratio of the scatter from step to step, which is estimated from some hundred steps: 5 standard errors.
_OTHER_SCATTER = 2.5

Figure = Callable[[Curve], Sequence[float]]
FIGURES: dict[str, Figure] = {"loss": lambda curve: curve.losses, "norm of the parameters": lambda curve: curve.norms}


@dataclass(frozen=True)
class Alongside:
    """The result of training alongside eager: `learned` (None if nothing was trained), and the `fault`, or ""."""

    learned: Learned | None = None
    fault: str = ""


@dataclass(frozen=True)
class Lesson:
    """The training that all sides do: batches in turn, random numbers from a seed, and a time limit for all of them."""

    samples: tuple[Sample, ...]
    seed: int
    limit_s: float

    def learn(
        self, step: TrainingStep, steps: int, *, turn: int = 0, shaken: int | None = None, limit_s: float = math.inf
    ) -> Curve:
        """Train `steps` steps and return the curve. `turn`: other values than 0 give other random numbers."""
        return curve_of(step, self.samples[:_BATCHES], self.seed + turn, steps=steps, limit_s=limit_s, shaken=shaken)


@dataclass(frozen=True)
class Yardstick:
    """How eager learns, to compare a candidate with.

    `given`: the curve of eager as given. `near`: eager in the candidate's precision. `off`: curves of eager that differ
    from it only by roundings. `turns`: curves with other random numbers. `multiple`: how far a correct curve may be
    from the given one, in units of the largest deviation in `off`. `skipped`: why the check was skipped, or "".
    """

    given: Curve
    near: TrainingStep
    multiple: float = _MULTIPLE
    off: tuple[Curve, ...] = ()
    turns: tuple[Curve, ...] = ()
    skipped: str = ""

    @property
    def unit(self) -> str:
        """The word for the points of the curves."""
        return _unit(self.near)

    def surer(self, lesson: Lesson) -> Yardstick:
        """Add more curves that differ by roundings: in a chaotic training, two of them may stay close by chance."""
        moves = range(_SHAKEN, _SHAKEN + _MORE)
        more = (lesson.learn(self.near, len(self.given), shaken=own) for own in moves)
        return replace(self, off=(*self.off, *more))

    def limit(self, figure: Figure) -> float:
        """Return how far a correct curve may be from the given one."""
        level = _rms(_last(figure(self.given)))
        return self.multiple * max(_apart(figure(one), figure(self.given)) for one in self.off) + _FLOOR * level


def yardstick_of(baseline: TrainingStep, near: TrainingStep, lesson: Lesson, *, random: bool) -> Yardstick:
    """Train eager as given (`baseline`), and in the candidate's precision (`near`).

    `random`: whether the candidate draws other random numbers than eager. The number of steps is up to 32, as many as
    the time limit allows for all runs. If it does not allow 8 steps, the check is skipped.
    """
    moves = tuple(range(_SHAKEN)) if near is baseline else (None, *range(_SHAKEN))
    runs = 2 + len(moves) + random * 2 * _SEEDS
    given = lesson.learn(baseline, STEPS, limit_s=lesson.limit_s / runs)
    if len(given) < _LEAST:
        return Yardstick(
            given, near, skipped=f"there was time for {len(given)} {_unit(near)} of each training, and 8 are needed"
        )
    steps = next((n for n, loss in enumerate(given.losses) if not math.isfinite(loss)), len(given))
    if steps < _LEAST:
        return Yardstick(given, near, skipped=f"eager's own loss is {given.losses[steps]} at step {steps + 1}")
    given = Curve(given.losses[:steps], given.norms[:steps])
    try:
        off = tuple(lesson.learn(near, steps, shaken=own) for own in moves)
    except Exception as fault:  # for example from oneDNN, which lacks a bfloat16 LSTM for some processors
        return Yardstick(given, near, skipped=f"eager fails in this precision: {str(fault).splitlines()[0]}")
    multiple = _MULTIPLE if near is baseline else _MULTIPLE_REDUCED
    turns = tuple(lesson.learn(near, steps, turn=own) for own in range(1, _SEEDS + 1)) if random else ()
    return Yardstick(given, near, multiple, off, turns)


def learn_alongside(
    candidate: TrainingStep, alike: TrainingStep | None, yardstick: Yardstick, lesson: Lesson
) -> Alongside:
    """Train the candidate as eager was trained, and compare.

    `alike`: if the candidate draws other random numbers than eager, a copy of it that draws eager's. The curve of that
    copy is then compared with eager's. The candidate itself is compared by distribution, over some seeds.
    """
    steps, given = len(yardstick.given), yardstick.given
    if yardstick.skipped:
        return Alongside(Learned(skipped=yardstick.skipped))
    paired = lesson.learn(candidate if alike is None else alike, steps)
    if paired_fault(paired, yardstick):
        yardstick = yardstick.surer(lesson)
    told, fault = _told([paired], [given], yardstick), paired_fault(paired, yardstick)
    if fault or alike is None:
        return Alongside(
            told, fault and f"{fault}, over the last {_quarter(steps)} of {steps} {yardstick.unit} of training"
        )
    drawn = [lesson.learn(candidate, steps, turn=own) for own in range(1, _SEEDS + 1)]
    fault = drawn_fault(drawn, yardstick, min(_BATCHES, len(lesson.samples)))
    told = structs.replace(_told(drawn, yardstick.turns, yardstick), seeds=_SEEDS, off=told.off)
    return Alongside(told, fault and f"{fault}, over {steps} {yardstick.unit} of training from {_SEEDS} seeds")


def paired_fault(ours: Curve, yardstick: Yardstick) -> str:
    """Return what is wrong with a curve that should equal the given one, or ""."""
    for name, figure in FIGURES.items():
        off, limit = _apart(figure(ours), figure(yardstick.given)), yardstick.limit(figure)
        if not off <= limit:
            off_by, allowed = format_beyond(off, limit)
            return f"the {name} deviates from eager's by {off_by}, more than {allowed}"
    return ""


def drawn_fault(ours: Sequence[Curve], yardstick: Yardstick, period: int) -> str:
    """Return what is wrong with curves that should have the same distribution as eager's, or "".

    First, the mean of each figure over the last quarter is compared, given the scatter between seeds. Second, the
    scatter of a batch's loss is compared from one time to the next; each batch comes again every `period` steps. If
    dropout uses the same mask every time, that loss does not scatter.
    """
    theirs = yardstick.turns
    noise, own_noise = (math.sqrt(fmean(_noise(one.losses, period) for one in some)) for some in (theirs, ours))
    for name, figure in FIGURES.items():
        mine, others = ([fmean(_last(figure(one))) for one in some] for some in (ours, theirs))
        spread = math.sqrt((variance(mine) + variance(others)) / 2)
        if name == "loss":
            spread = max(spread, noise / math.sqrt(_quarter(len(yardstick.given))))
        allowed = _FURTHEST * spread * math.sqrt(2 / len(mine)) + yardstick.limit(figure)
        if not abs(fmean(mine) - fmean(others)) <= allowed:
            return f"the {name} is {fmean(mine):.4g} at the end, and eager's is {fmean(others):.4g}"
    apart, rounding = abs(own_noise - noise), yardstick.limit(FIGURES["loss"])
    if apart > rounding and not 1 / _OTHER_SCATTER <= own_noise / max(noise, 1e-300) <= _OTHER_SCATTER:
        return f"the loss varies by {own_noise:.2g} from step to step, and eager's by {noise:.2g}"
    return ""


def _noise(losses: Sequence[float], period: int) -> float:
    """Return the variance without the trend, from second differences of a batch's losses; 0 if there are too few."""
    triples = zip(losses, losses[period:], losses[2 * period :], strict=False)
    squares = [(before - 2 * here + after) ** 2 / 6 for before, here, after in triples]
    return fmean(squares) if squares else 0.0


def _told(ours: Sequence[Curve], theirs: Sequence[Curve], yardstick: Yardstick) -> Learned:
    return Learned(
        steps=len(yardstick.given),
        first=fmean(fmean(one.losses[: _quarter(len(one))]) for one in ours),
        last=fmean(fmean(_last(one.losses)) for one in ours),
        baseline_last=fmean(fmean(_last(one.losses)) for one in theirs),
        off=_apart(ours[0].losses, yardstick.given.losses),
        limit=yardstick.limit(FIGURES["loss"]),
        by_closure=yardstick.near.by_closure,
    )


def _unit(step: TrainingStep) -> str:
    return words_of("closure" if step.by_closure else "training").many


def _quarter(steps: int) -> int:
    return max(1, steps // 4)


def _last(values: Sequence[float]) -> Sequence[float]:
    return values[-_quarter(len(values)) :]


def _rms(values: Sequence[float]) -> float:
    return math.sqrt(fmean(value * value for value in values))


def _apart(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the root mean square difference over the last quarter; infinite if a value is not finite."""
    off = _rms([one - other for one, other in zip(_last(ours), _last(theirs), strict=True)])
    return off if math.isfinite(off) else math.inf
