"""One start of a production process, as one line of JSON: seconds of each step, and whether the result is right.

    python start.py WAY MODEL DIRECTORY      (see record.py, which prepares DIRECTORY)

Only what the way itself needs is imported, and imports are timed where they happen.
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
    """As it is."""
    return model


def compiled(model, _directory):
    """`torch.compile`; what its cache holds is up to whoever started this."""
    return torch.compile(model)


def mega_cache(model, directory):
    """`torch.compile` after loading what `torch.compiler.save_cache_artifacts` gave."""
    torch.compiler.load_cache_artifacts((directory / "mega-cache").read_bytes())
    return torch.compile(model)


def aoti(_model, directory):
    """The AOTInductor package through torch's public function."""
    return torch._inductor.aoti_load_package(str(directory / "public.pt2"))  # noqa: SLF001


def ours(model, directory):
    """`autocompile.load`."""
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
    """Import, model, load, first call; then whether it is right, and how long a steady call takes."""
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
    """Until the GPU has done what it was given, if there is one."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def timed(run, inputs) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    run(**inputs)
    waited()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
