"""What the guards cost: the loaded module against the bare runner of the same package, in pairs, in one process.

    python studies/startup/overhead.py

A tiny model, where every microsecond shows, and MiniLM. Appended to results/.
"""

import tempfile
from pathlib import Path
from typing import Any

import torch
from record import keep, results_path
from torch import nn
from workloads import minilm

import autocompile
from autocompile.core.job import Timing
from autocompile.trial.timing import subject, time_pairs
from autocompile.workload.samples import Sample

STRATEGY = "[search]\nmax_trials = 2\n[dimensions]\nbackend = ['inductor']\n[finals]\ncandidates = 1\nprocesses = 1\n"
PROCESS_TIMING = Timing(precision=0.002, limit_s=30.0)


class Bare:
    """The package's own runner, on tensors that are ready."""

    threads, module = 0, None

    def __init__(self, module: autocompile.CompiledModule, inputs: dict[str, torch.Tensor]) -> None:
        ((_guard, native),) = module._server._programs  # noqa: SLF001  the study looks beneath
        self._run, self._tensors = native._binding.run, list(inputs.values())  # noqa: SLF001

    def __call__(self, **_inputs: torch.Tensor) -> Any:
        return self._run(self._tensors)


class Loaded:
    """The module as users call it."""

    threads, module = 0, None

    def __init__(self, module: autocompile.CompiledModule) -> None:
        self._module = module

    def __call__(self, **inputs: torch.Tensor) -> Any:
        return self._module(**inputs)


class Chain(nn.Module):
    """Many small operations, which take some microseconds when they are one kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(rows, 16) in and out."""
        for _ in range(10):
            x = torch.tanh(x * self.scale + 1)
        return x


def tiny() -> tuple[Any, dict[str, torch.Tensor]]:
    """Microseconds a call."""
    torch.manual_seed(0)
    return Chain().eval(), {"x": torch.randn(4, 16)}


def main() -> None:
    """Pack, load, time."""
    for name, make in {"tiny": tiny, "minilm": minilm}.items():
        model, inputs = make()
        with tempfile.TemporaryDirectory() as directory:
            strategy = Path(directory) / "strategy.toml"
            strategy.write_text(STRATEGY)
            output = Path(directory) / "rec"
            autocompile.optimize(
                model, inputs, "5m", calls=10**12, strategy=str(strategy), output=output, progress=False
            )
            row = overhead(autocompile.load(output, model), inputs)
        keep(results_path(), {"kind": "overhead", "model": name, **row})
        print(name, row)


def overhead(module: autocompile.CompiledModule, inputs: dict[str, torch.Tensor]) -> dict[str, float]:
    """The ratio with its interval, and what that is in microseconds a call."""
    assert module.status.tier == "aot", module.status
    samples = [Sample((), inputs)]
    threads = torch.get_num_threads()
    bare = subject(Bare(module, inputs), samples, "cpu", threads)
    loaded = subject(Loaded(module), samples, "cpu", threads)
    pairs = time_pairs(bare, loaded, PROCESS_TIMING, seed=0)
    call_us = pairs.baseline.mean_ms * 1e3
    return {
        "bare_us": call_us,
        "ratio": pairs.ratio.value,
        "low": pairs.ratio.low,
        "high": pairs.ratio.high,
        "overhead_us": (pairs.ratio.value - 1) * call_us,
        "overhead_high_us": (pairs.ratio.high - 1) * call_us,
    }


if __name__ == "__main__":
    main()
