"""Torch's process-wide settings. They belong to a workload because they change its numerics and its threads."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeVar

import torch

from autocompile.core.workload import TorchSettings

T = TypeVar("T")

# Backends that compute in float32, by their names in `torch.backends`. A backend comes after the one whose precision it
# inherits.
_ALL = "all"
_WITH_PRECISION = (
    *(_ALL, "cudnn", "mkldnn"),
    *("cuda.matmul", "cudnn.conv", "cudnn.rnn", "mkldnn.matmul", "mkldnn.conv", "mkldnn.rnn"),
)
_SWITCHES = (
    "cudnn.deterministic",
    "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda.matmul.allow_bf16_reduced_precision_reduction",
)
# Ways to compute attention. Each has one function to query it and one to set it.
_ATTENTION = ("flash_sdp", "mem_efficient_sdp", "math_sdp", "cudnn_sdp")


def current_settings() -> TorchSettings:
    """Return the settings of this process."""
    return TorchSettings(
        threads=torch.get_num_threads(),
        matmul_precision=_told(torch.get_float32_matmul_precision, ""),
        default_dtype=str(torch.get_default_dtype()).removeprefix("torch."),
        deterministic=torch.are_deterministic_algorithms_enabled(),
        cudnn_benchmark=torch.backends.cudnn.benchmark,
        cudnn_tf32=_told(lambda: bool(torch.backends.cudnn.allow_tf32), None),
        precisions=_precisions(),
        switches=_switches(),
    )


def apply_settings(settings: TorchSettings) -> None:
    """Apply the settings in this process. Settings that already match are not set again.

    Setting a float32 precision, even to the same value, marks it as chosen, and that mark is part of the compiler's
    cache keys.
    """
    now = current_settings()
    if now.threads != settings.threads:
        torch.set_num_threads(settings.threads)
    if now.default_dtype != settings.default_dtype:
        torch.set_default_dtype(getattr(torch, settings.default_dtype))
    if now.deterministic != settings.deterministic:
        torch.use_deterministic_algorithms(settings.deterministic)
    if now.cudnn_benchmark != settings.cudnn_benchmark:
        torch.backends.cudnn.benchmark = settings.cudnn_benchmark
    _apply_precision(settings, now)
    _apply_switches(settings, now)


def _apply_precision(settings: TorchSettings, now: TorchSettings) -> None:
    if settings.matmul_precision and now.matmul_precision != settings.matmul_precision:
        torch.set_float32_matmul_precision(settings.matmul_precision)
    if settings.cudnn_tf32 is not None and now.cudnn_tf32 != settings.cudnn_tf32:
        torch.backends.cudnn.allow_tf32 = settings.cudnn_tf32
    # Set the backends that the two settings above have not changed.
    for name, precision in settings.precisions.items():
        if _precisions().get(name, precision) != precision:
            _backend(name).fp32_precision = precision


def _apply_switches(settings: TorchSettings, now: TorchSettings) -> None:
    for name, value in settings.switches.items():
        if now.switches.get(name, value) == value:
            continue
        if name in _ATTENTION:
            getattr(torch.backends.cuda, f"enable_{name}")(value)
        else:
            owner, _, switch = name.rpartition(".")
            setattr(_backend(owner), switch, value)


def _precisions() -> dict[str, str]:
    """Return the precision of each backend for which this version of torch has one."""
    told = {name: _told(lambda name=name: str(_backend(name).fp32_precision), "") for name in _WITH_PRECISION}  # type: ignore[misc]
    return {name: precision for name, precision in told.items() if precision}


def _switches() -> dict[str, bool]:
    """Return the switches that this version of torch has."""
    ask: dict[str, Callable[[], Any]] = {
        **{name: lambda name=name: attrgetter(name)(torch.backends) for name in _SWITCHES},  # type: ignore[misc]
        **{name: lambda name=name: getattr(torch.backends.cuda, f"{name}_enabled")() for name in _ATTENTION},  # type: ignore[misc]
    }
    told = {name: _told(switch, None) for name, switch in ask.items()}
    return {name: value for name, value in told.items() if isinstance(value, bool)}


def _backend(name: str) -> Any:
    return torch.backends if name == _ALL else attrgetter(name)(torch.backends)


def _told(ask: Callable[[], T], unknown: T) -> T:
    """Return what `ask` returns, or `unknown` if torch refuses.

    Torch's older functions raise a RuntimeError when the newer settings are in use.
    """
    try:
        return ask()
    except (AttributeError, RuntimeError):
        return unknown
