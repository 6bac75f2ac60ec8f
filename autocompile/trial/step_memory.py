"""What a step of training has in memory at its most, and nothing of what else the process holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from autocompile.workload.axes import leaves_of
from autocompile.workload.samples import Sample
from autocompile.workload.training.step import TrainingStep


def step_peak_bytes(step: TrainingStep, samples: Sequence[Sample]) -> int:
    """Parameters, buffers, the optimizer's state and the batches, and the most that is allocated beside them meanwhile.

    So gradients and activations are in it. It is that of a step in steady state, on the sample with the largest
    batches, as torch's allocator tells it: what a library keeps for itself, the compiler and the process are not in it.
    It leaves no trace.
    """
    sample = max(samples, key=lambda one: _bytes_of(_tensors(one)))
    with step.preserved():
        step.run(sample)  # afterwards the optimizer's state is there
        step.clear()
        held = _bytes_of([*(tensor for _name, tensor in step.state.named()), *_tensors(sample)])
        return held + most_allocated(step.device_type, lambda: step.run(sample))


def most_allocated(device_type: str, run: Callable[[], Any]) -> int:
    """The most bytes, beyond those that are there at its beginning, that `run` has allocated at once."""
    return _GROWTH[device_type](run)


def _allocated_on_cpu(run: Callable[[], Any]) -> int:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        run()
    results = recorded.profiler.kineto_results if recorded.profiler else None
    events = [event for event in results.events() if event.name() == "[memory]"] if results else []
    now = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most


def _allocated_on_cuda(run: Callable[[], Any]) -> int:
    """What CUDA graphs hold for themselves is allocated already, and theirs."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    snapshot = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    graphs = sum(part["total_size"] for part in snapshot if part["segment_pool_id"] != (0, 0))
    return int(torch.cuda.max_memory_allocated() - before + graphs)


_GROWTH = {"cpu": _allocated_on_cpu, "cuda": _allocated_on_cuda}


def _tensors(sample: Sample) -> list[torch.Tensor]:
    return [leaf for leaf in leaves_of(sample) if isinstance(leaf, torch.Tensor)]


def _bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    """Of their memory, each once that several share."""
    strided = [tensor for tensor in tensors if tensor.layout == torch.strided]
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in strided}
    return sum(storages.values())
