"""Whether a candidate goes on to learn as eager does: some dozens of steps of both, from one beginning.

A check of single steps does not see what is wrong in every fifth of them, nor what adds up from less than a rounding in
each. Compared are two curves, over their last quarter: the loss, and the norm of all parameters, which tells of weight
decay that is lost before the loss does. Right steps grow apart as well, and in some trainings chaotically. How far, is
what eager does where nothing but roundings differ: in the precision of the plan, and with parameters that are moved by
up to a rounding before every step. Where the optimizer calls for the loss itself, as LBFGS does, it goes its own way on
either side, and the curves are over the calls of its closure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, variance

from msgspec import structs

from autocompile.core.outcome import Learned
from autocompile.core.words import words_of
from autocompile.workload.samples import Sample
from autocompile.workload.training.curve import Curve, curve_of
from autocompile.workload.training.step import TrainingStep

STEPS = 32
# Of fewer steps a quarter says no more than single steps do.
_LEAST = 8
# No more, so that each comes so often that it is seen how its loss scatters.
_BATCHES = 4
# How many are trained with parameters moved by a rounding, and how many more before anybody is accused; and where other
# random numbers are drawn, from how many seeds, by either side.
_SHAKEN, _MORE, _SEEDS = 2, 6, 4
# In units of what eager is off at most. Right steps (fused, compiled, laid out otherwise) of a transformer, a CNN, an
# LSTM and an MLP were 2.3 times as far off or less; but in float32, where that is no more than roundings and what they
# grow to, one of eager's own was 20 times as far off as another. And relative to the figure itself.
_MULTIPLE, _MULTIPLE_REDUCED, _FLOOR = 10.0, 4.0, 1e-5
# In standard errors. Four seeds of either side leave six degrees of freedom: by chance it is so once in 5,000.
_FURTHEST = 8.0
# Of the scatter from step to step, which is known from some hundred of them: 5 standard errors.
_OTHER_SCATTER = 2.5

Figure = Callable[[Curve], Sequence[float]]
FIGURES: dict[str, Figure] = {"loss": lambda curve: curve.losses, "norm of the parameters": lambda curve: curve.norms}


@dataclass(frozen=True)
class Alongside:
    """What came of it, null where nothing is trained; and what is wrong, or ""."""

    learned: Learned | None = None
    fault: str = ""


@dataclass(frozen=True)
class Lesson:
    """What everybody is trained on: batches in turn, random numbers from a seed; for so many seconds, all together."""

    samples: tuple[Sample, ...]
    seed: int
    limit_s: float

    def learn(
        self, step: TrainingStep, steps: int, *, turn: int = 0, shaken: int | None = None, limit_s: float = math.inf
    ) -> Curve:
        """So many steps; `turn`: other than 0 for other random numbers."""
        return curve_of(step, self.samples[:_BATCHES], self.seed + turn, steps=steps, limit_s=limit_s, shaken=shaken)


@dataclass(frozen=True)
class Yardstick:
    """How eager learns: as `given`, `off` as much as roundings make it, and by other `turns` of random numbers.

    `near`: eager in the candidate's precision.
    `multiple`: in units of what it is off at most, how far a right one may be. `skipped`: why there is none, or "".
    """

    given: Curve
    near: TrainingStep
    multiple: float = _MULTIPLE
    off: tuple[Curve, ...] = ()
    turns: tuple[Curve, ...] = ()
    skipped: str = ""

    @property
    def unit(self) -> str:
        """What the points of the curves are called."""
        return _unit(self.near)

    def surer(self, lesson: Lesson) -> Yardstick:
        """With more of those that roundings make: in a chaotic training two of them may happen to stay near."""
        moves = range(_SHAKEN, _SHAKEN + _MORE)
        more = (lesson.learn(self.near, len(self.given), shaken=own) for own in moves)
        return replace(self, off=(*self.off, *more))

    def limit(self, figure: Figure) -> float:
        """How far from the given curve a right one may be."""
        level = _rms(_last(figure(self.given)))
        return self.multiple * max(_apart(figure(one), figure(self.given)) for one in self.off) + _FLOOR * level


def yardstick_of(baseline: TrainingStep, near: TrainingStep, lesson: Lesson, *, random: bool) -> Yardstick:
    """Train eager: as it is given, and `near` to the candidate, in its precision.

    `random`: whether the candidate draws random numbers of its own. There are as many steps, up to 32, as the seconds
    allow for all that are trained; none if these do not allow for 8.
    """
    moves = tuple(range(_SHAKEN)) if near is baseline else (None, *range(_SHAKEN))
    runs = 2 + len(moves) + random * 2 * _SEEDS
    given = lesson.learn(baseline, STEPS, limit_s=lesson.limit_s / runs)
    if len(given) < _LEAST:
        return Yardstick(
            given, near, skipped=f"the time was enough for {len(given)} {_unit(near)} of each training, and not for 8"
        )
    steps = next((n for n, loss in enumerate(given.losses) if not math.isfinite(loss)), len(given))
    if steps < _LEAST:
        return Yardstick(given, near, skipped=f"eager's own loss is {given.losses[steps]} at step {steps + 1}")
    given = Curve(given.losses[:steps], given.norms[:steps])
    try:
        off = tuple(lesson.learn(near, steps, shaken=own) for own in moves)
    except Exception as fault:  # as of oneDNN, which has no bfloat16 LSTM for every processor
        return Yardstick(given, near, skipped=f"eager fails in this precision: {str(fault).splitlines()[0]}")
    multiple = _MULTIPLE if near is baseline else _MULTIPLE_REDUCED
    turns = tuple(lesson.learn(near, steps, turn=own) for own in range(1, _SEEDS + 1)) if random else ()
    return Yardstick(given, near, multiple, off, turns)


def learn_alongside(
    candidate: TrainingStep, alike: TrainingStep | None, yardstick: Yardstick, lesson: Lesson
) -> Alongside:
    """Train the candidate as eager was trained, and compare.

    `alike`: the candidate as it draws eager's random numbers, where it draws others itself. Then that one is compared
    curve with curve, and the candidate by distribution, over some seeds.
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
    """What is wrong with a curve that should be the given one, or ""."""
    for name, figure in FIGURES.items():
        off, limit = _apart(figure(ours), figure(yardstick.given)), yardstick.limit(figure)
        if not off <= limit:
            return f"the {name} goes off eager's by {off:.2g}, more than {limit:.2g}"
    return ""


def drawn_fault(ours: Sequence[Curve], yardstick: Yardstick, period: int) -> str:
    """What is wrong with curves that should be alike by distribution, or "".

    Compared are the mean of a figure over the last quarter, with what the seeds of both sides scatter by; and how much
    the loss of a batch, which comes again every `period` steps, scatters from one time to the next: where masks of
    dropout are the same each time, it does not.
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
            return f"the {name} is {fmean(mine):.4g} in the end, and eager's {fmean(others):.4g}"
    apart, rounding = abs(own_noise - noise), yardstick.limit(FIGURES["loss"])
    if apart > rounding and not 1 / _OTHER_SCATTER <= own_noise / max(noise, 1e-300) <= _OTHER_SCATTER:
        return f"the loss scatters by {own_noise:.2g} from step to step, and eager's by {noise:.2g}"
    return ""


def _noise(losses: Sequence[float], period: int) -> float:
    """The variance of what is no trend, from second differences of a batch's losses; 0 for too few of them."""
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
    """The root mean square difference over the last quarter; infinite where a value is not finite."""
    off = _rms([one - other for one, other in zip(_last(ours), _last(theirs), strict=True)])
    return off if math.isfinite(off) else math.inf
