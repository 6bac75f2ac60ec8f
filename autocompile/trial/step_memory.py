"""The peak memory of a training step, without anything else that the process holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from autocompile.workload.axes import leaves_of
from autocompile.workload.samples import Sample
from autocompile.workload.training.step import TrainingStep


def step_peak_bytes(step: TrainingStep, samples: Sequence[Sample]) -> int:
    """Return the peak memory of a training step in bytes.

    It is the sum of parameters, buffers, the optimizer's state, the batches, and the most allocated in addition during
    the step. It therefore includes gradients and activations. It is measured for a step in steady state, on the sample
    with the largest batches, with torch's allocator. Memory of other libraries, the compiler and the process itself is
    not included. The state of the step is left unchanged.
    """
    sample = max(samples, key=lambda one: _bytes_of(_tensors(one)))
    with step.preserved():
        step.run(sample)  # creates the optimizer's state
        step.clear()
        held = _bytes_of([*(tensor for _name, tensor in step.state.named()), *_tensors(sample)])
        return held + most_allocated(step.device_type, lambda: step.run(sample))


def most_allocated(device_type: str, run: Callable[[], Any]) -> int:
    """Return the most bytes that `run` has allocated at once, beyond those allocated before it."""
    return _GROWTH[device_type](run)


def _allocated_on_cpu(run: Callable[[], Any]) -> int:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as recorded:
        run()
    results = recorded.profiler.kineto_results if recorded.profiler else None
    events = [event for event in results.events() if event.name() == "[memory]"] if results else []
    now = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most


def _allocated_on_cuda(run: Callable[[], Any]) -> int:
    """Include the pools of CUDA graphs: they belong to the step, but were allocated before it runs."""
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
    """Return the bytes of the tensors' memory, counting memory that several tensors share once."""
    strided = [tensor for tensor in tensors if tensor.layout == torch.strided]
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in strided}
    return sum(storages.values())
