"""Whether a candidate computes what the model computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from autocompile.core.outcome import Accuracy
from autocompile.core.tolerance import Tolerance, multiple_for
from autocompile.workload.reference import Case, Reference, observe


@dataclass(frozen=True)
class Verified:
    """The worst figure over all cases, and what is wrong, or ""."""

    accuracy: Accuracy
    fault: str


def verify(call: Callable[..., Any], reference: Reference, tolerance: Tolerance) -> Verified:
    """Compare everything a call does (outputs, mutated inputs and buffers) with the reference, case by case.

    An output passes if its root mean square error is within the tolerance plus a multiple of what the
    baseline itself is off, and every element is within its own bound; see `core.tolerance`.
    """
    worst = Accuracy(
        error=0.0, baseline_error=0.0, limit=tolerance.rmse, element_error=0.0, output="", reference=reference.precision
    )
    for case in reference.cases:
        seen, structure = observe(call, case.sample, reference.seed)
        fault = _structural_fault(case, seen, structure)
        if fault:
            return Verified(worst, fault)
        for name, actual in seen.items():
            found = _compare(name, actual, case, tolerance, reference)
            if found.fault:
                return found
            if _severity(found.accuracy) >= _severity(worst):
                worst = found.accuracy
    return Verified(worst, "")


def _severity(accuracy: Accuracy) -> float:
    return max(accuracy.error / accuracy.limit, accuracy.element_error)


def _structural_fault(case: Case, seen: dict[str, Any], structure: str) -> str:
    if structure != case.structure:
        return f"the output's structure is {structure}, not {case.structure}"
    if seen.keys() != case.baseline.keys():
        return f"there are {sorted(seen)} instead of {sorted(case.baseline)}"
    return ""


def _compare(name: str, actual: Any, case: Case, tolerance: Tolerance, reference: Reference) -> Verified:
    expected, baseline = case.expected[name], case.baseline[name]
    exact = Accuracy(
        error=0.0,
        baseline_error=0.0,
        limit=tolerance.rmse,
        element_error=0.0,
        output=name,
        reference=reference.precision,
    )
    if not isinstance(baseline, torch.Tensor) or not isinstance(actual, torch.Tensor):
        same = type(actual) is type(baseline) and actual == baseline
        return Verified(exact, "" if same else f"{name} is {actual!r}, not {baseline!r}")
    if actual.dtype != baseline.dtype or actual.shape != baseline.shape or actual.device != baseline.device:
        return Verified(exact, f"{name} is {_kind(actual)}, not {_kind(baseline)}")
    if not baseline.is_floating_point() and not baseline.is_complex():
        return Verified(
            exact, "" if torch.equal(actual, baseline) else f"{name} differs ({_kind(actual)}, compared exactly)"
        )
    return _compare_floats(name, actual, expected, baseline, tolerance, reference)


def _compare_floats(
    name: str, actual: Any, expected: Any, baseline: Any, tolerance: Tolerance, reference: Reference
) -> Verified:
    finite = torch.isfinite(baseline)
    bad = int((~torch.isfinite(actual) & finite).sum())
    strays = torch.where(finite, torch.zeros_like(actual), actual)
    same_strays = torch.equal(
        torch.nan_to_num(strays), torch.nan_to_num(torch.where(finite, torch.zeros_like(baseline), baseline))
    )
    wide = torch.complex128 if baseline.is_complex() else torch.float64
    truth, got, base = (
        torch.where(finite, t.to(wide), torch.zeros_like(t, dtype=wide)) for t in (expected, actual, baseline)
    )
    got = torch.nan_to_num(got) if not got.is_complex() else got
    scale = max(_rms(truth), 1e-30)
    error, own = _rms(got - truth) / scale, _rms(base - truth) / scale
    floor = 0.0 if reference.precision == "float64" else _assumed_error(baseline.dtype)
    multiple = multiple_for(tolerance, baseline.numel())
    limit = tolerance.rmse + multiple * max(own, floor)
    bound = tolerance.element * (scale + truth.abs()) + multiple * max(
        float((base - truth).abs().max()) if base.numel() else 0.0, floor * scale
    )
    element = float(((got - truth).abs() / bound).max()) if got.numel() else 0.0
    accuracy = Accuracy(
        error=error, baseline_error=own, limit=limit, element_error=element, output=name, reference=reference.precision
    )
    if bad:
        return Verified(accuracy, f"{name} has {bad} NaN or infinite elements where the baseline has none")
    if not same_strays:
        return Verified(accuracy, f"{name} has other NaN or infinite elements than the baseline")
    if error > limit:
        return Verified(accuracy, f"{name} is off by {error:.2g} (relative root mean square), more than {limit:.2g}")
    if element > 1:
        return Verified(accuracy, f"{name} has an element off by {element:.3g} times its bound")
    return Verified(accuracy, "")


def _rms(tensor: Any) -> float:
    return float(tensor.abs().pow(2).mean().sqrt()) if tensor.numel() else 0.0


def _assumed_error(dtype: torch.dtype) -> float:
    """What a baseline may be off where nothing more precise could be run to tell: some tens of roundings."""
    return 50 * torch.finfo(dtype).eps


def _kind(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{tuple(tensor.shape)} on {tensor.device}"
