"""Start as production does: in a new process, with a first call. Prints the seconds of each step as JSON.

    python -m autocompile.trial.pack.cold_start TASK.json

This module does not import the compiler, because the measured code must not find it already imported.
"""

from __future__ import annotations

import time

_BEGAN = time.perf_counter()

import sys  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from itertools import pairwise  # noqa: E402
from pathlib import Path  # noqa: E402

import torch  # noqa: E402

from autocompile.artifact.load import load  # noqa: E402
from autocompile.artifact.module import CompiledModule  # noqa: E402
from autocompile.artifact.options import Asked  # noqa: E402
from autocompile.core.job import FreshStart, FreshTask  # noqa: E402
from autocompile.core.serde import from_json, to_json  # noqa: E402
from autocompile.core.serving import Serving  # noqa: E402
from autocompile.workload.samples import Sample  # noqa: E402
from autocompile.workload.spool import unspool  # noqa: E402

_STEADY_CALLS = 3


def main() -> None:
    """Unspool, load and call. The first step is the import of torch and of this package."""
    task = from_json(Path(sys.argv[1]).read_bytes(), FreshTask)
    sys.path[:] = task.workload.search_path
    steps = [_BEGAN, time.perf_counter()]
    model, samples = unspool(task.workload, batch=task.plan.batch)
    steps.append(time.perf_counter())
    module = load(task.artifact, model, Asked(on_mismatch="error"))
    steps.append(time.perf_counter())
    _one_pass(module, samples)
    steps.append(time.perf_counter())
    passes = []
    for _ in range(_STEADY_CALLS):
        began = time.perf_counter()
        _one_pass(module, samples)
        passes.append(time.perf_counter() - began)
    import_s, model_s, load_s, first_pass_s = (later - earlier for earlier, later in pairwise(steps))
    cache = module.status.cache
    start = FreshStart(
        import_s=import_s,
        model_s=model_s,
        load_s=load_s,
        first_pass_s=first_pass_s,
        steady_pass_s=min(passes),
        serving=Serving(module.status.runtime, module.status.start),
        cache_misses=cache.misses if cache else 0,
    )
    sys.stdout.write(to_json(start).decode() + "\n")


def _one_pass(module: CompiledModule, samples: Sequence[Sample]) -> None:
    for sample in samples:
        module(*sample.args, **sample.kwargs)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
