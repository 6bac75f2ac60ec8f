"""Measure the cost of the guards: the loaded module against the bare runner of the same package, in one process.

    python studies/startup/overhead.py

The models are a tiny one, for which every microsecond counts, one of about 10 ms, and MiniLM. MiniLM returns its
tensors in an output object, so it is also compared with a bare runner that builds this object. The two sides are timed
in pairs. Rows are appended to results/.
"""

import tempfile
from pathlib import Path
from typing import Any

import torch
from record import keep, results_of
from torch import nn
from workloads import minilm

from autocompile.artifact.integrity import write_manifest
from autocompile.artifact.load import load
from autocompile.artifact.mismatch import requirements
from autocompile.artifact.module import CompiledModule
from autocompile.core.job import Packed, Timing
from autocompile.core.plan import Plan
from autocompile.core.serving import Serving
from autocompile.heap import settle_heap
from autocompile.runtime.aot.compile import compile_ahead
from autocompile.search.packages import manifest_of
from autocompile.trial.clock.timing import subject, time_pairs
from autocompile.workload.call import Call
from autocompile.workload.samples import Sample
from autocompile.workload.spool import spool

PROCESS_TIMING = Timing(precision=0.002, limit_s=30.0)


class Bare(Call):
    """Call the runner of the package directly, on prepared tensors."""

    def __init__(self, module: CompiledModule, inputs: dict[str, torch.Tensor]) -> None:
        ((_guard, native),) = module._server._programs  # noqa: SLF001  the study needs the internals
        super().__init__(native._binding.run)  # noqa: SLF001
        self._tensors = list(inputs.values())

    def __call__(self, **_inputs: torch.Tensor) -> Any:
        return self.model(self._tensors)


class BareWithOutput(Bare):
    """Call the runner and build the model's output object from its tensors, as eager also does."""

    def __init__(self, module: CompiledModule, inputs: dict[str, torch.Tensor]) -> None:
        super().__init__(module, inputs)
        self._assemble = module._server._programs[0][1]._assemble  # noqa: SLF001

    def __call__(self, **_inputs: torch.Tensor) -> Any:
        return self._assemble(self.model(self._tensors))


class Loaded(Call):
    """Call the loaded module as users do."""

    def __call__(self, **inputs: torch.Tensor) -> Any:
        return self.model(**inputs)


class Chain(nn.Module):
    """A chain of many small operations, which takes a few microseconds as one kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (rows, 16) to (rows, 16)."""
        for _ in range(10):
            x = torch.tanh(x * self.scale + 1)
        return x


def tiny() -> tuple[Any, dict[str, torch.Tensor]]:
    """Return a model whose call takes microseconds."""
    torch.manual_seed(0)
    return Chain().eval(), {"x": torch.randn(4, 16)}


def middling() -> tuple[Any, dict[str, torch.Tensor]]:
    """Return a model whose call takes about 10 ms and returns a plain tensor."""
    torch.manual_seed(0)
    return Chain().eval(), {"x": torch.randn(45_000, 16)}


def main() -> None:
    """Pack each model, load it with `autocompile.load`, and time it."""
    settle_heap()
    for name, make in {"tiny": tiny, "middling": middling, "minilm": minilm}.items():
        model, inputs = make()
        with tempfile.TemporaryDirectory() as directory:
            module = packed(model, Sample((), inputs), Path(directory))
            for against in (Bare, BareWithOutput) if name == "minilm" else (Bare,):
                label = name if against is Bare else f"{name}, output put together"
                row = overhead(module, against(module, inputs), inputs)
                keep(results_of(), {"kind": "overhead", "model": label, **row})
                print(label, row)


def packed(model: Any, sample: Sample, directory: Path) -> CompiledModule:
    """Pack the model and load it as production does."""
    left = directory / "aot"
    left.mkdir()
    plan = Plan(runtime="aot")
    program = compile_ahead(model, plan, sample, (), left, "program")
    made = Packed((program,), requirements("aot", with_python=False, device_type="cpu"))
    workload = spool(model, sample.kwargs or sample.args, directory / "workload")
    write_manifest(directory, manifest_of(workload, plan, Serving("aot", "load"), made, directory))
    module = load(directory, model)
    assert module.status.runtime == "aot", module.status
    return module


def overhead(module: CompiledModule, against: Bare, inputs: dict[str, torch.Tensor]) -> dict[str, float]:
    """Return the ratio with its interval, and the overhead in microseconds per call."""
    samples = [Sample((), inputs)]
    threads = torch.get_num_threads()
    bare = subject(against, samples, "cpu", threads)
    loaded = subject(Loaded(module), samples, "cpu", threads)
    pairs = time_pairs(bare, loaded, PROCESS_TIMING, seed=0)
    assert not module.status.fallbacks, module.status
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
