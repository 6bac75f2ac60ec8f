"""Time the start of a process that serves an artifact, with no compiler on its PATH.

    python studies/portfolio/start.py REC WORKLOAD    # prints seconds as JSON, each of three processes

`library_s`: importing the library that serves the artifact, if there is one. `start_s`: `autocompile.load` and the
first call, with everything that autocompile itself imports for them. The time for importing torch and building the
model is not included.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PROCESSES = 3
_STARTS = """
import importlib, json, sys, time
from by_hand import arguments_of, library
from workloads import workload
import torch
import autocompile

model, inputs = workload(sys.argv[2])
args, kwargs = arguments_of(inputs)
runtime = json.load(open(sys.argv[1] + "/recommendation.json"))["winner"]["plan"]["runtime"]
began = time.perf_counter()
if runtime == "openvino":
    library()
elif runtime == "onnxruntime":
    importlib.import_module(runtime)
imported = time.perf_counter()
with torch.no_grad():
    module = autocompile.load(sys.argv[1], model)
    module(*args, **kwargs)
print(json.dumps({"library_s": imported - began, "start_s": time.perf_counter() - imported}))
assert not module.status.fallbacks, module.status
"""


def main() -> None:
    """Print the seconds of each process."""
    rec, name = sys.argv[1:]
    print(json.dumps(starts(rec, name)))


def starts(rec: str, name: str) -> list[dict[str, float]]:
    """Return the seconds that each process took to import the library, and to load the artifact and call it once."""
    return [_start(rec, name) for _ in range(PROCESSES)]


def _start(rec: str, name: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(
            [sys.executable, "-c", _STARTS, rec, name],
            cwd=HERE,
            env={**os.environ, "PATH": empty},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"a process that serves {name} failed: {done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
