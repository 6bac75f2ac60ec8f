"""Start as a production process does; print the seconds of each step and whether the result is right as JSON.

    python start.py WAY MODEL DIRECTORY      (see record.py, which prepares DIRECTORY)

Each way imports only the modules that it needs, and its imports count in the step in which they happen.
"""

import time

BEGAN = time.perf_counter()

import torch  # noqa: E402

IMPORTED = time.perf_counter()

import json  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from workloads import workload  # noqa: E402


def eager(model, _directory):
    """Return the unmodified model."""
    return model


def compiled(model, _directory):
    """Use `torch.compile`; the parent process decides what its cache contains."""
    return torch.compile(model)


def mega_cache(model, directory):
    """Use `torch.compile` after loading the output of `torch.compiler.save_cache_artifacts`."""
    torch.compiler.load_cache_artifacts((directory / "mega-cache").read_bytes())
    return torch.compile(model)


def aoti(_model, directory):
    """Load the AOTInductor package with torch's `aoti_load_package`."""
    return torch._inductor.aoti_load_package(str(directory / "public.pt2"))  # noqa: SLF001


def ours(model, directory):
    """Load the recommendation with `autocompile.load`."""
    import autocompile

    return autocompile.load(directory / "rec", model)


WAYS = {
    "eager": eager,
    "torch.compile, fresh": compiled,
    "torch.compile, carried cache": compiled,
    "torch.compile, mega-cache": mega_cache,
    "aoti_load_package, fresh": aoti,
    "autocompile.load": ours,
}


def main() -> None:
    """Import, build the model, load, and call once; then check the result and time further calls."""
    way, name, directory = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    model, inputs = workload(name)
    waited()
    built = time.perf_counter()
    run = WAYS[way](model, directory)
    loaded = time.perf_counter()
    with torch.no_grad():
        output = run(**inputs)
    waited()
    done = time.perf_counter()
    expected = torch.load(directory / "expected.pt")
    first = next(iter(output.values()))
    error = float((first - expected).norm() / expected.norm())
    with torch.no_grad():
        calls = [timed(run, inputs) for _ in range(5)]
    print(
        json.dumps(
            {
                "import_s": IMPORTED - BEGAN,
                "model_s": built - IMPORTED,
                "load_s": loaded - built,
                "first_call_s": done - loaded,
                "steady_call_s": min(calls),
                "error": error,
                "right": error < 2e-2,
            }
        )
    )


def waited() -> None:
    """Wait until the GPU has finished its work, if it is in use."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def timed(run, inputs) -> float:
    """Return the seconds of one call."""
    began = time.perf_counter()
    run(**inputs)
    waited()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
