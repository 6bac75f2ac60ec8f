"""The limits for the error of a leaf of an observation, by the kind of leaf."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from autocompile.core.tolerance import Tolerance, multiple_for, published_tolerance

# Gradients accumulate a network's rounding errors layer by layer, so they get ten times an output's limits, as in the
# PyTorch benchmark suite, whose tolerance is 1e-4 for inference in float32 and 1e-3 to 1e-2 for training.
_LEARNING_FACTOR = 10.0
# If an input of a ReLU is within a rounding of zero, one implementation lets a gradient through and another does not.
# The share of such units grows with the spacing of numbers, and the error with its square root. In float32 with many
# units, they changed a convolution's gradient by 0.3% (16 images, channels-last or not), and one element by as much as
# its size. With few units, such a unit is rare but matters more: 15% of the gradient of a small layer over 32 samples,
# in one step. A real error shows in more than one step.
_KINKS_FACTOR, _KINKS, _KINK_OF_ELEMENT, _KINK_OF_STEP = 1.5, 3e-2, 1.0, 0.3
# The error of bfloat16 autocast, divided by float32's error times the ratio of their spacings, was 0.02 to 8 for the
# gradients of two transformers, an LSTM, two MLPs and two CNNs, and 11 where float32 happened to have a small error.
_PREDICTION_FACTOR = 3.0
# A gradient that is nothing but roundings was 5 times as large when the compiler had added in another order.
_NOTHING_BUT_ROUNDINGS, _OTHER_ORDER_FACTOR = 0.5, 32.0
# The limit for the gradients of all parameters together, in any precision. For comparison, dividing twice when two
# batches are accumulated gives an error of 0.5.
WHOLE_GRADIENT = 0.4

# How much of an update may be the rounding of a setting. Weight decay is some 1e-3 of an update, and must not be lost.
_ROUNDING_OF_UPDATE = 1e-4


@dataclass(frozen=True)
class Own:
    """The baseline's own error in a leaf with `elements` elements.

    `rms`: the root mean square error, relative to `scale`, the expected values' root mean square. `worst`: the largest
    absolute error of one element. `epsilon`: the spacing of numbers near 1 in the leaf's dtype. `known`: whether the
    error was measured; otherwise it is assumed.
    """

    rms: float
    worst: float
    scale: float
    elements: int
    epsilon: float
    known: bool

    def at_least(self, roundings: float) -> Own:
        """Return an error of at least `roundings` roundings of the leaf's dtype, if the error was not measured."""
        if self.known:
            return self
        floor = roundings * self.epsilon
        worst = max(self.worst, floor * self.scale)
        return Own(max(self.rms, floor), worst, self.scale, self.elements, self.epsilon, self.known)


@dataclass(frozen=True)
class Limits:
    """The limits of a leaf's error.

    `rmse`: the root mean square error, relative to the scale. One element may deviate by `element` times (scale + its
    size), plus `slack`.
    """

    rmse: float
    element: float
    slack: float


Rule = Callable[[Own, Tolerance], Limits]


def of_calls(own: Own, tolerance: Tolerance) -> Limits:
    """Return the limits for a model's outputs and state; see `core.tolerance`."""
    own = own.at_least(50)
    multiple = multiple_for(tolerance, own.elements)
    return Limits(tolerance.rmse + multiple * own.rms, tolerance.element, multiple * own.worst)


def of_learning(own: Own, tolerance: Tolerance) -> Limits:
    """Return the limits for the loss, gradients and statistics of a training step.

    Some gradients are small differences of large numbers. In the extreme they would be zero without rounding (a bias
    before batch normalization, the bias of attention's keys). The baseline's error in its own precision shows to what
    degree. In a reduced precision the error is larger by the ratio of the two spacings.
    """
    own = own.at_least(5)
    coarser = max(1.0, tolerance.epsilon / own.epsilon)
    factor = _PREDICTION_FACTOR * coarser
    if own.rms > _NOTHING_BUT_ROUNDINGS:
        factor = max(factor, _OTHER_ORDER_FACTOR)
    multiple = tolerance.multiple * factor
    rmse = max(_LEARNING_FACTOR * tolerance.rmse, _KINKS_FACTOR * math.sqrt(tolerance.epsilon), _KINKS)
    rmse += multiple * own.rms
    return Limits(rmse, max(10 * rmse, _KINK_OF_ELEMENT), multiple * own.worst)


def of_worst_step(own: Own, tolerance: Tolerance) -> Limits:
    """Return the limits for the gradient of the step with the largest error among several steps."""
    limits = of_learning(own, tolerance)
    rmse = max(2 * limits.rmse, _KINK_OF_STEP)
    return Limits(rmse, 10 * rmse, limits.slack)


def of_sequel(spacing: torch.Tensor | None, rounding: float) -> Rule:
    """Return the rule for an optimizer's results from given gradients.

    Float32's limits apply, as the optimizer uses no reduced precision. A state cannot be more exact than its dtype. An
    update cannot be more exact than the parameter to which it is added, whose `spacing` of numbers is given. `rounding`
    is the error of a factor that an implementation may compute from rounded settings.
    """

    def rule(own: Own, _tolerance: Tolerance) -> Limits:
        tolerance = published_tolerance("")
        coarse, worst = max(own.rms, own.epsilon), own.worst
        if spacing is not None and spacing.numel():
            coarse = max(coarse, float(spacing.square().mean().sqrt()) / own.scale)
            worst = max(worst, float(spacing.max()))
        multiple = multiple_for(tolerance, own.elements)
        element = max(tolerance.element, multiple * own.epsilon)
        # An update is proportional to the root of such a state.
        allowed = rounding if spacing is None else min(rounding / 2, _ROUNDING_OF_UPDATE)
        return Limits(tolerance.rmse + multiple * coarse + allowed, element, multiple * worst)

    return rule
