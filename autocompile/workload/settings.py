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
    """Have them in this process too."""
    torch.set_num_threads(settings.threads)
    torch.set_float32_matmul_precision(settings.matmul_precision)
    torch.set_default_dtype(getattr(torch, settings.default_dtype))
    torch.use_deterministic_algorithms(settings.deterministic)
    torch.backends.cudnn.benchmark = settings.cudnn_benchmark
    torch.backends.cudnn.allow_tf32 = settings.cudnn_tf32
