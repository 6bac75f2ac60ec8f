"""Torch's process-wide settings, which belong to a workload: numerics and threads change with them."""

from __future__ import annotations

import torch

from autocompile.core.workload import TorchSettings


def current_settings() -> TorchSettings:
    """As they are in this process."""
    return TorchSettings(
        threads=torch.get_num_threads(),
        matmul_precision=torch.get_float32_matmul_precision(),
        default_dtype=str(torch.get_default_dtype()).removeprefix("torch."),
        deterministic=torch.are_deterministic_algorithms_enabled(),
        cudnn_benchmark=torch.backends.cudnn.benchmark,
        cudnn_tf32=torch.backends.cudnn.allow_tf32,
    )


def apply_settings(settings: TorchSettings) -> None:
    """Have them in this process too; what is so already is left alone.

    Setting even the same float32 precision marks it as chosen, and is part of the compiler's cache keys.
    """
    now = current_settings()
    if now.threads != settings.threads:
        torch.set_num_threads(settings.threads)
    if now.matmul_precision != settings.matmul_precision:
        torch.set_float32_matmul_precision(settings.matmul_precision)
    if now.default_dtype != settings.default_dtype:
        torch.set_default_dtype(getattr(torch, settings.default_dtype))
    if now.deterministic != settings.deterministic:
        torch.use_deterministic_algorithms(settings.deterministic)
    if now.cudnn_benchmark != settings.cudnn_benchmark:
        torch.backends.cudnn.benchmark = settings.cudnn_benchmark
    if now.cudnn_tf32 != settings.cudnn_tf32:
        torch.backends.cudnn.allow_tf32 = settings.cudnn_tf32
