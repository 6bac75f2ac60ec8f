"""Time every way by hand and what `autocompile.load` serves, for one workload in one process, interleaved.

    python studies/portfolio/one.py NAME RECOMMENDATION [WAY...]     # prints JSON; default: all ways

Blocks of all ways alternate in random order. A block begins when the threads of the previous way have stopped spinning,
and its first call is not measured. `load` may set the process's number of threads; the ways by hand keep the usual one.
What is served by OpenVINO or ONNX Runtime is also timed as it serves NumPy arrays (`autocompile_numpy`), because these
ways by hand take arrays. A speed-up is the median over the rounds of eager's time divided by the way's time in the same
round, with its 95% interval.
"""

import contextlib
import io
import json
import logging
import math
import random
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from by_hand import WAYS, arguments_of, ways
from right import FOR_ARRAYS, OURS
from torch.utils import _pytree as pytree
from workloads import device_type, workload

import autocompile
from autocompile.heap import settle_heap
from autocompile.runtime.catalogue import kind
from autocompile.trial.clock.devices import DEVICES
from autocompile.trial.clock.intervals import median_interval
from autocompile.trial.clock.timing import settle

ROUNDS, BLOCK_S = 40, 0.04


def main() -> None:
    """Build all ways, time them, and print JSON."""
    name, directory, *some = sys.argv[1:]
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    settle_heap()
    model, inputs = workload(name)
    with torch.no_grad():
        reference = numbers(WAYS["eager"](model, inputs)())
        calls, said = {}, {}
        wanted = some or [*ways(device_type()), FOR_ARRAYS]
        for way, build in ((way, WAYS[way]) for way in wanted if way != FOR_ARRAYS):
            calls[way], said[way] = tried(lambda build=build: build(*workload(name)), reference)
        args, kwargs = arguments_of(inputs)
        usual = torch.get_num_threads()
        module = autocompile.load(directory, model)
        threads = {OURS: torch.get_num_threads()}
        calls[OURS], said[OURS] = tried(lambda: lambda: module(*args, **kwargs), reference)
        if FOR_ARRAYS in wanted and kind(module.status.runtime).arrays:
            calls[FOR_ARRAYS], said[FOR_ARRAYS] = tried(lambda: for_arrays(directory, args, kwargs), reference)
        rounds = timed({way: Way(call, threads.get(way, usual)) for way, call in calls.items() if call is not None})
    assert not module.status.fallbacks, module.status
    served = f"{module.status.runtime} {module.status.label}"
    print(json.dumps({"ways": summary(rounds), "rounds_us": in_us(rounds), "built": said, "served": served}))


def for_arrays(directory: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Any]:
    """Return a call of what `load` serves for NumPy arrays, as the ways by hand with OpenVINO and ONNX Runtime do."""
    module = autocompile.load(directory, arrays="numpy")
    own_args, own_kwargs = pytree.tree_map_only(torch.Tensor, torch.Tensor.numpy, (args, kwargs))
    return lambda: module(*own_args, **own_kwargs)


def tried(build: Callable[[], Any], reference: Any) -> tuple[Any, dict[str, Any]]:
    """Return a warmed-up call with its build time in seconds and its error; or None and why the way failed."""
    began = time.perf_counter()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            call = build()
            values = numbers(call())  # before the next call, which may overwrite the output of a CUDA graph
            for _ in range(3):
                call()
    except Exception as fault:
        words = str(fault).strip().splitlines() or [""]
        return None, {"failed": f"{type(fault).__name__}: {words[0][:150]}"}
    return call, {"built_s": round(time.perf_counter() - began, 2), "error": error_of(values, reference)}


def numbers(output: Any) -> Any:
    """Return the values of the first output as a NumPy array."""
    is_tensor = isinstance(output, (torch.Tensor, np.ndarray))
    leaves = list(output.values()) if not is_tensor and hasattr(output, "values") else pytree.tree_leaves(output)
    first = leaves[0]
    return np.asarray(first.float().cpu() if isinstance(first, torch.Tensor) else first, dtype=np.float64)


def error_of(values: Any, reference: Any) -> float | None:
    """Return the root mean square error relative to the reference's root mean square; None if shapes differ."""
    if values.shape != reference.shape:
        return None
    return float(np.sqrt(np.mean((values - reference) ** 2)) / (np.sqrt(np.mean(reference**2)) or 1.0))


@dataclass(frozen=True)
class Way:
    """A `call`, and with how many threads of torch's it is made."""

    call: Callable[[], Any]
    threads: int

    def begin(self) -> None:
        """Wait until other threads have stopped spinning, and make a call."""
        torch.set_num_threads(self.threads)
        settle()
        self.call()


def timed(calls: dict[str, Way]) -> dict[str, list[float]]:
    """Return for each way the seconds per call of each round."""
    counts = {way: max(1, math.ceil(BLOCK_S / once(call))) for way, call in calls.items()}
    seconds: dict[str, list[float]] = {way: [] for way in calls}
    order = random.Random(0)
    for _ in range(ROUNDS):
        for way in order.sample(list(calls), len(calls)):
            seconds[way].append(block(calls[way], counts[way]))
    return seconds


def summary(seconds: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Return for each way the milliseconds per call and the speed-up over eager with its interval."""
    found = {}
    for way, measured in seconds.items():
        ratio = median_interval([math.log(own / base) for own, base in zip(measured, seconds["eager"], strict=True)])
        value, low, high = (math.exp(-x) for x in (ratio.value, ratio.high, ratio.low))
        found[way] = {"ms": float(np.median(measured)) * 1e3, "speedup": value, "low": low, "high": high}
    return found


def in_us(seconds: dict[str, list[float]]) -> dict[str, list[float]]:
    """Return the microseconds per call, rounded to a thousandth of themselves or better."""
    return {way: [float(f"{1e6 * one:.4g}") for one in measured] for way, measured in seconds.items()}


def once(way: Way) -> float:
    """Return the seconds of one call."""
    synchronize = DEVICES[device_type()].synchronize
    way.begin()
    synchronize()
    began = time.perf_counter()
    way.call()
    synchronize()
    return time.perf_counter() - began


def block(way: Way, count: int) -> float:
    """Return the seconds per call in one block."""
    synchronize, call = DEVICES[device_type()].synchronize, way.call
    way.begin()
    synchronize()
    began = time.perf_counter()
    for _ in range(count):
        call()
    synchronize()
    return (time.perf_counter() - began) / count


if __name__ == "__main__":
    main()
