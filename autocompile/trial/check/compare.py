"""Check whether a candidate computes the same results as the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch

from autocompile.core.job import Acceptance
from autocompile.core.outcome import Accuracy
from autocompile.core.tolerance import Tolerance
from autocompile.core.units import format_beyond
from autocompile.trial.check.leaf import Leaf, WholeGradient, leaves_of, rms
from autocompile.trial.check.limits import Own
from autocompile.trial.check.reference import Case, Reference
from autocompile.workload.observation import Observation
from autocompile.workload.step import Step

Metric = Callable[[Any], float]


@dataclass(frozen=True)
class Comparison:
    """The worst accuracy over all cases, and the `fault` or "". `by_figure`: the fault is only the size of an error."""

    accuracy: Accuracy
    fault: str
    by_figure: bool = False


def compare(step: Step, reference: Reference, acceptance: Acceptance, metric: Metric | None = None) -> Comparison:
    """Compare everything a step does (outputs, mutated inputs and state) with the reference, case by case.

    A leaf passes if its root mean square error is within the tolerance plus a multiple of the baseline's own error, and
    every element is within its own bound; see `core.tolerance` and `limits`. A leaf that follows from other leaves is
    compared with what follows from the observed ones. A metric replaces the limits on the outputs' errors, but
    structure, dtypes, NaN and state are still compared.
    """
    worst = _no_error("", acceptance.tolerance, reference)
    drops = []
    for case in reference.cases:
        actual = step.observe(case.sample, reference.seed)
        fault = _structural_fault(case, actual)
        if fault:
            return Comparison(worst, _on(case, fault))
        whole = WholeGradient()
        for leaf in leaves_of(case, actual, reference):
            compared = _compare_leaf(leaf, acceptance.tolerance, reference)
            judged_by_metric = metric is not None and leaf.name.startswith("output") and compared.by_figure
            if compared.fault and not judged_by_metric:
                return replace(compared, fault=_on(case, compared.fault))
            if severity(compared.accuracy) >= severity(worst):
                worst = compared.accuracy
            whole.take(leaf)
        if whole.fault:
            return Comparison(worst, _on(case, whole.fault), by_figure=True)
        if metric is not None:
            drops.append(metric(case.baseline.output) - metric(actual.output))
    return _judged_by_drop(drops, acceptance, reference) if metric is not None else Comparison(worst, "")


def _on(case: Case, fault: str) -> str:
    return f"{fault}, on {case.origin}" if case.origin else fault


def _judged_by_drop(drops: list[float], acceptance: Acceptance, reference: Reference) -> Comparison:
    drop = sum(drops) / len(drops)
    accuracy = Accuracy(
        error=drop,
        baseline_error=0.0,
        limit=acceptance.max_drop,
        element_error=0.0,
        output="metric",
        reference=reference.precision,
    )
    fine = drop <= acceptance.max_drop
    return Comparison(accuracy, "" if fine else f"the metric drops by {drop:.4g}, more than {acceptance.max_drop:.4g}")


def severity(accuracy: Accuracy) -> float:
    """Return how close an output came to its limit; 1 is at the limit."""
    return max(accuracy.error / accuracy.limit, accuracy.element_error)


def _no_error(output: str, tolerance: Tolerance, reference: Reference) -> Accuracy:
    return Accuracy(
        error=0.0,
        baseline_error=0.0,
        limit=tolerance.rmse,
        element_error=0.0,
        output=output,
        reference=reference.precision,
    )


def _structural_fault(case: Case, actual: Observation) -> str:
    if actual.structure != case.baseline.structure:
        return f"the output's structure is {actual.structure}, not {case.baseline.structure}"
    missing, added = (
        case.baseline.leaves.keys() - actual.leaves.keys(),
        actual.leaves.keys() - case.baseline.leaves.keys(),
    )
    if missing or added:
        told = [f"there is {words} {_few(names)}" for words, names in (("no", missing), ("an added", added)) if names]
        return " and ".join(told)
    return ""


def _few(names: Iterable[str]) -> str:
    first, *others = sorted(names)
    return f"{first} (and {len(others)} more)" if others else first


def _compare_leaf(leaf: Leaf, tolerance: Tolerance, reference: Reference) -> Comparison:
    name, actual, baseline = leaf.name, leaf.actual, leaf.baseline
    exact = _no_error(name, tolerance, reference)
    if not isinstance(baseline, torch.Tensor) or not isinstance(actual, torch.Tensor):
        same = type(actual) is type(baseline) and actual == baseline
        return Comparison(exact, "" if same else f"{name} is {actual!r}, not {baseline!r}")
    if actual.dtype != baseline.dtype or actual.shape != baseline.shape or actual.device != baseline.device:
        return Comparison(exact, f"{name} is {_kind(actual)}, not {_kind(baseline)}")
    if not baseline.is_floating_point() and not baseline.is_complex():
        same = torch.equal(actual, baseline)
        return Comparison(exact, "" if same else f"{name} differs ({_kind(actual)}, compared exactly)", by_figure=True)
    finite = torch.isfinite(baseline)
    fault = _stray_fault(name, actual, baseline, finite)
    # Where the reference itself overflows or is undefined there is nothing to measure against.
    judged = finite & torch.isfinite(leaf.expected) & torch.isfinite(leaf.baseline_expected)
    if fault or not bool(judged.any()):
        return Comparison(exact, fault)
    return _compare_finite(leaf.flat if bool(judged.all()) else leaf.at(judged), tolerance, reference)


def _stray_fault(name: str, actual: Any, baseline: Any, finite: Any) -> str:
    """Return a fault if NaN and infinities are not in the same places as in the baseline, or ""."""
    strays = int((~torch.isfinite(actual) & finite).sum())
    if strays:
        return f"{name} has {strays} NaN or infinite elements where the baseline has none"
    strange, expected = actual[~finite], baseline[~finite]
    same = ((strange == expected) | (torch.isnan(strange) & torch.isnan(expected))).all()
    return "" if bool(same) else f"{name} has other NaN or infinite elements than the baseline"


def _compare_finite(leaf: Leaf, tolerance: Tolerance, reference: Reference) -> Comparison:
    """Compare the elements that are finite in the baseline; all one-dimensional and not empty."""
    name, truth = leaf.name, leaf.truth
    off, own_off = (leaf.got - truth).abs(), leaf.own_error.abs()
    # The error of a gradient that is nothing but roundings is measured relative to the baseline's own error.
    scale = max(rms(truth), rms(own_off), 1e-30)
    error, own_error = rms(off) / scale, rms(own_off) / scale
    known = leaf.expected.dtype == truth.dtype
    epsilon = torch.finfo(leaf.baseline.dtype).eps
    own = Own(own_error, float(own_off.max()), scale, leaf.baseline.numel(), epsilon, known)
    limits = leaf.rule(own, tolerance)
    bound = limits.element * (scale + truth.abs()) + limits.slack
    element = float((off / bound).max())
    accuracy = Accuracy(
        error=error,
        baseline_error=own_error,
        limit=limits.rmse,
        element_error=element,
        output=name,
        reference=reference.precision,
    )
    # Written so that a NaN, which compares false, is a fault.
    if not error <= limits.rmse:
        off_by, allowed = format_beyond(error, limits.rmse)
        told = f"{name} is off by {off_by} (relative root mean square), more than {allowed}"
        return Comparison(accuracy, told, by_figure=True)
    if not element <= 1:
        return Comparison(accuracy, f"{name} has an element off by {element:.3g} times its bound", by_figure=True)
    return Comparison(accuracy, "")


def _kind(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{tuple(tensor.shape)} on {tensor.device}"
