"""Whether a candidate computes what the model computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from autocompile.core.job import Acceptance
from autocompile.core.outcome import Accuracy
from autocompile.core.tolerance import Tolerance, multiple_for
from autocompile.trial.check.reference import Case, Observation, Reference, observe

Metric = Callable[[Any], float]


@dataclass(frozen=True)
class Verified:
    """The worst figure over all cases, and what is wrong, or ""; `by_figure` if only the error's size is."""

    accuracy: Accuracy
    fault: str
    by_figure: bool = False


def verify(
    call: Callable[..., Any], reference: Reference, acceptance: Acceptance, metric: Metric | None = None
) -> Verified:
    """Compare everything a call does (outputs, mutated inputs and buffers) with the reference, case by case.

    An output passes if its root mean square error is within the tolerance plus a multiple of what the
    baseline itself is off, and every element is within its own bound; see `core.tolerance`. With a
    metric, the outputs' figures give way to it, but structure, dtypes, NaN and state are still compared.
    """
    worst = _no_error("", acceptance.tolerance, reference)
    drops = []
    for case in reference.cases:
        seen = observe(call, case.sample, reference.seed)
        fault = _structural_fault(case, seen)
        if fault:
            return Verified(worst, _on(case, fault))
        for name, actual in seen.leaves.items():
            found = _compare(name, actual, case, acceptance.tolerance, reference)
            judged_by_metric = metric is not None and name.startswith("output") and found.by_figure
            if found.fault and not judged_by_metric:
                return replace(found, fault=_on(case, found.fault))
            if _severity(found.accuracy) >= _severity(worst):
                worst = found.accuracy
        if metric is not None:
            drops.append(metric(case.baseline.output) - metric(seen.output))
    return _judged_by_drop(drops, acceptance, reference) if metric is not None else Verified(worst, "")


def _on(case: Case, fault: str) -> str:
    return f"{fault}, on {case.origin}" if case.origin else fault


def _judged_by_drop(drops: list[float], acceptance: Acceptance, reference: Reference) -> Verified:
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
    return Verified(accuracy, "" if fine else f"the metric drops by {drop:.4g}, more than {acceptance.max_drop:.4g}")


def _severity(accuracy: Accuracy) -> float:
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


def _structural_fault(case: Case, seen: Observation) -> str:
    if seen.structure != case.baseline.structure:
        return f"the output's structure is {seen.structure}, not {case.baseline.structure}"
    if seen.leaves.keys() != case.baseline.leaves.keys():
        return f"there are {sorted(seen.leaves)} instead of {sorted(case.baseline.leaves)}"
    return ""


def _compare(name: str, actual: Any, case: Case, tolerance: Tolerance, reference: Reference) -> Verified:
    baseline = case.baseline.leaves[name]
    exact = _no_error(name, tolerance, reference)
    if not isinstance(baseline, torch.Tensor) or not isinstance(actual, torch.Tensor):
        same = type(actual) is type(baseline) and actual == baseline
        return Verified(exact, "" if same else f"{name} is {actual!r}, not {baseline!r}")
    if actual.dtype != baseline.dtype or actual.shape != baseline.shape or actual.device != baseline.device:
        return Verified(exact, f"{name} is {_kind(actual)}, not {_kind(baseline)}")
    if not baseline.is_floating_point() and not baseline.is_complex():
        same = torch.equal(actual, baseline)
        return Verified(exact, "" if same else f"{name} differs ({_kind(actual)}, compared exactly)", by_figure=True)
    finite = torch.isfinite(baseline)
    fault = _stray_fault(name, actual, baseline, finite)
    # Where the reference itself overflows or is undefined there is nothing to measure against.
    judged = finite & torch.isfinite(case.expected.leaves[name])
    if fault or not bool(judged.any()):
        return Verified(exact, fault)
    return _compare_finite(
        name, actual[judged], case.expected.leaves[name][judged], baseline[judged], tolerance, reference
    )


def _stray_fault(name: str, actual: Any, baseline: Any, finite: Any) -> str:
    """NaN and infinities must be the baseline's own."""
    strays = int((~torch.isfinite(actual) & finite).sum())
    if strays:
        return f"{name} has {strays} NaN or infinite elements where the baseline has none"
    one, other = actual[~finite], baseline[~finite]
    same = ((one == other) | (torch.isnan(one) & torch.isnan(other))).all()
    return "" if bool(same) else f"{name} has other NaN or infinite elements than the baseline"


def _compare_finite(
    name: str, actual: Any, expected: Any, baseline: Any, tolerance: Tolerance, reference: Reference
) -> Verified:
    """Compare the elements that are finite in the baseline; all one-dimensional and not empty."""
    wide = torch.complex128 if baseline.is_complex() else torch.float64
    truth, got, base = expected.to(wide), actual.to(wide), baseline.to(wide)
    scale = max(_rms(truth), 1e-30)
    error, own_error = _rms(got - truth) / scale, _rms(base - truth) / scale
    floor = 0.0 if expected.dtype == wide else _assumed_error(baseline.dtype)
    multiple = multiple_for(tolerance, baseline.numel())
    limit = tolerance.rmse + multiple * max(own_error, floor)
    own_worst = max(float((base - truth).abs().max()), floor * scale)
    bound = tolerance.element * (scale + truth.abs()) + multiple * own_worst
    element = float(((got - truth).abs() / bound).max())
    accuracy = Accuracy(
        error=error,
        baseline_error=own_error,
        limit=limit,
        element_error=element,
        output=name,
        reference=reference.precision,
    )
    # Written so that a NaN, which compares false, is a fault.
    if not error <= limit:
        return Verified(
            accuracy, f"{name} is off by {error:.2g} (relative root mean square), more than {limit:.2g}", by_figure=True
        )
    if not element <= 1:
        return Verified(accuracy, f"{name} has an element off by {element:.3g} times its bound", by_figure=True)
    return Verified(accuracy, "")


def _rms(tensor: Any) -> float:
    return float(tensor.abs().pow(2).mean().sqrt())


def _assumed_error(dtype: torch.dtype) -> float:
    """What a baseline may be off where nothing more precise could be run to tell: some tens of roundings."""
    return 50 * torch.finfo(dtype).eps


def _kind(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{tuple(tensor.shape)} on {tensor.device}"
