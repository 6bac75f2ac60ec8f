"""How far a leaf of an observation may be off, by what kind of leaf it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from autocompile.core.tolerance import Tolerance, multiple_for, published_tolerance

# Gradients add up a network's rounding errors, layer by layer, so they get ten times an output's limits, as in the
# PyTorch benchmark suite, whose tolerance is 1e-4 for inference in float32 and 1e-3 to 1e-2 for training.
_LEARNING_FACTOR = 10.0
# Where an input of a ReLU lies within a rounding of zero, one implementation lets a gradient through and another does
# not. The share of such units is as the spacing of numbers, and the error as its root. In float32, where there are many
# units, such made 0.3% of a convolution's gradient (16 images, channels-last or not), and as much as its size of one
# element. Where there are few units, one of them is rare but makes more: 15% of the gradient of a small layer over 32
# samples, in one step. What is wrong is so in more than one.
_KINKS_FACTOR, _KINKS, _KINK_OF_ELEMENT, _KINK_OF_STEP = 1.5, 3e-2, 1.0, 0.3
# What bfloat16 autocast was off, over what float32 was off times the ratio of their spacings: 0.02 to 8 over the
# gradients of two transformers, an LSTM, two MLPs and two CNNs; and 11 where float32 happened to be off by little.
_PREDICTION_FACTOR = 3.0
# A gradient that is nothing but roundings was 5 times as large where the compiler had added in another order.
_NOTHING_BUT_ROUNDINGS, _OTHER_ORDER_FACTOR = 0.5, 32.0
# The gradients of all parameters together, in any precision. With two batches accumulated, dividing twice gives 0.5.
WHOLE_GRADIENT = 0.4


@dataclass(frozen=True)
class Own:
    """What the baseline itself is off in a leaf of so many `elements`.

    `rms`: relative to `scale`, the expected values' root mean square. `worst`: of one element, absolute. `epsilon`: the
    spacing of numbers near 1 in the leaf's dtype. `known`: whether it was measured; else it is assumed.
    """

    rms: float
    worst: float
    scale: float
    elements: int
    epsilon: float
    known: bool

    def at_least(self, roundings: float) -> Own:
        """With at least so many roundings of the leaf's own, where nothing more precise could be run to tell."""
        if self.known:
            return self
        floor = roundings * self.epsilon
        worst = max(self.worst, floor * self.scale)
        return Own(max(self.rms, floor), worst, self.scale, self.elements, self.epsilon, self.known)


@dataclass(frozen=True)
class Limits:
    """`rmse`: relative to the scale. An element may be off `element` times (scale + its size), and `slack` besides."""

    rmse: float
    element: float
    slack: float


Rule = Callable[[Own, Tolerance], Limits]


def of_calls(own: Own, tolerance: Tolerance) -> Limits:
    """What a model returns, and what becomes of its state; see `core.tolerance`."""
    own = own.at_least(50)
    multiple = multiple_for(tolerance, own.elements)
    return Limits(tolerance.rmse + multiple * own.rms, tolerance.element, multiple * own.worst)


def of_learning(own: Own, tolerance: Tolerance) -> Limits:
    """Loss, gradients and statistics of a training step.

    Some gradients are small differences of large numbers, down to those that would be zero if it were not for rounding
    (a bias before batch normalization, that of attention's keys). How much so is seen from what the baseline is off, in
    its own precision. In a reduced one it is so many times more as that is coarser.
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
    """The gradient of one step among several, which is the furthest off."""
    limits = of_learning(own, tolerance)
    rmse = max(2 * limits.rmse, _KINK_OF_STEP)
    return Limits(rmse, 10 * rmse, limits.slack)


def of_sequel(spacing: torch.Tensor | None) -> Rule:
    """What an optimizer makes of given gradients: in float32's limits, as no reduced precision has a part in it.

    No state can be more exact than its dtype, and no update than the parameter that it is added to, whose `spacing` is
    given.
    """

    def rule(own: Own, _tolerance: Tolerance) -> Limits:
        tolerance = published_tolerance("")
        coarse, worst = max(own.rms, own.epsilon), own.worst
        if spacing is not None and spacing.numel():
            coarse = max(coarse, float(spacing.square().mean().sqrt()) / own.scale)
            worst = max(worst, float(spacing.max()))
        multiple = multiple_for(tolerance, own.elements)
        element = max(tolerance.element, multiple * own.epsilon)
        return Limits(tolerance.rmse + multiple * coarse, element, multiple * worst)

    return rule
