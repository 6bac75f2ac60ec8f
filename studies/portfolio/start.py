"""Time the start of a process that serves an artifact, with no compiler on its PATH.

    python studies/portfolio/start.py REC WORKLOAD    # prints seconds as JSON, of each of three processes

`imports_s`: importing the library that serves the artifact, if there is one, and the modules of autocompile that are
needed for it. Another process finds out before which modules these are. `start_s`: `autocompile.load` and the first
call. The time for importing torch and building the model is not included.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PROCESSES = 3
_STARTS = """
import contextlib, importlib, json, sys, time
from by_hand import arguments_of
from workloads import workload
import torch
import autocompile

rec, name, *needed = sys.argv[1:]
model, inputs = workload(name)
args, kwargs = arguments_of(inputs)
known = set(sys.modules)
began = time.perf_counter()
if "openvino" in needed:  # its telemetry, which `load` does not import, would start a process meanwhile
    from autocompile.runtime.openvino.library import openvino

    openvino()
for module in needed:
    with contextlib.suppress(Exception):  # some are only made by importing others
        importlib.import_module(module)
imported = time.perf_counter()
with torch.no_grad():
    served = autocompile.load(rec, model)
    served(*args, **kwargs)
if torch.cuda.is_available():
    torch.cuda.synchronize()
ended = time.perf_counter()
assert not served.status.fallbacks, served.status
new = [module for module in sys.modules if module not in known]
print(json.dumps({"needs": new, "imports_s": imported - began, "start_s": ended - imported}))
"""


def main() -> None:
    """Print the seconds of each process."""
    rec, name = sys.argv[1:]
    print(json.dumps(starts(rec, name)))


def starts(rec: str, name: str) -> list[dict[str, float]]:
    """Return the seconds that each process took for imports, and to load the artifact and call it once."""
    needed = _start(rec, name, ())["needs"]
    found = [_start(rec, name, needed) for _ in range(PROCESSES)]
    return [{"imports_s": one["imports_s"], "start_s": one["start_s"]} for one in found]


def _start(rec: str, name: str, needed: Sequence[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(
            [sys.executable, "-c", _STARTS, rec, name, *needed],
            cwd=HERE,
            env={**os.environ, "PATH": empty},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"a process that serves {name} failed: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
