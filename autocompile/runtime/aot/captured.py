"""Run a program's calls as a CUDA graph: capture it at the first call, then replay it on copies of each call's tensors.

Starting a graph takes about as long as starting one kernel. The graph reads and writes the addresses that were used at
the capture. Therefore each call's tensors are copied in, and its outputs are copied out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from autocompile.core.outcome import FailureCause
from autocompile.runtime.base import NotLoadable

Run = Callable[[list[torch.Tensor]], list[torch.Tensor]]

# The first run loads kernels and folds constants, which cannot be captured. The second run is like all later ones.
_RUNS_BEFORE = 2


class Captured:
    """Serves all threads, one call at a time.

    Each call raises NotLoadable if the graph cannot be captured.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._one_at_a_time = threading.Lock()
        self._replay: _Replay | None = None
        self._fault: tuple[str, FailureCause] | None = None

    def __call__(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return the outputs, which belong to the caller."""
        with self._one_at_a_time:
            if self._replay is None:
                self._replay = self._capture(tensors)
            return self._replay(tensors)

    def _capture(self, tensors: Sequence[torch.Tensor]) -> _Replay:
        if self._fault is not None:
            raise NotLoadable(*self._fault)
        # Tensors that are made in inference mode could not be written to outside of it.
        with torch.inference_mode(mode=False), torch.no_grad(), torch.cuda.device(tensors[0].device):
            before = torch.cuda.current_stream()
            try:
                return _captured(self._run, tensors)
            except RuntimeError as fault:
                # After a failed capture, torch leaves the capture's stream as the current stream (2.13).
                torch.cuda.set_stream(before)
                # The exception from ending the capture says less than the first one.
                origin = fault.__context__ or fault
                said = next(iter(str(origin).splitlines()), type(origin).__name__)
                # There may be enough memory another time.
                cause = "" if isinstance(origin, torch.cuda.OutOfMemoryError) else "capture"
                self._fault = f"its calls cannot be captured as a CUDA graph: {said}", cause
                raise NotLoadable(*self._fault) from fault


class _Replay:
    """A graph, and the tensors that it reads and writes."""

    def __init__(self, graph: Any, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
        self._graph, self._inputs, self._outputs = graph, inputs, outputs
        self._device = inputs[0].device
        self._stream = torch.cuda.current_stream(self._device)

    def __call__(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        stream = torch.cuda.current_stream(self._device)
        if stream != self._stream:  # another thread's call on another stream may not have finished yet
            stream.wait_stream(self._stream)
            self._stream = stream
        for own, given in zip(self._inputs, tensors, strict=True):
            own.copy_(given)
        self._graph.replay()
        return [output.clone() for output in self._outputs]


def _captured(run: Run, tensors: Sequence[torch.Tensor]) -> _Replay:
    """Capture on the current device, on a stream that nothing else uses."""
    inputs = [_own(tensor) for tensor in tensors]
    current, aside = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(current)
    with torch.cuda.stream(aside):
        for _ in range(_RUNS_BEFORE):
            run(list(inputs))
    current.wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    # Other threads may go on with operations that cannot be captured.
    with torch.cuda.graph(graph, stream=aside, capture_error_mode="thread_local"):
        outputs = run(list(inputs))
    return _Replay(graph, inputs, outputs)


def _own(tensor: torch.Tensor) -> torch.Tensor:
    """Copy the tensor with the same strides, including gaps."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)
