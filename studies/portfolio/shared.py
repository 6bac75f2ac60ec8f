"""Measure the memory that an artifact takes in a process, alone and while others serve the same artifact.

    python studies/portfolio/shared.py REC WORKLOAD COUNT    # prints the MiB of each process; needs Linux

The result is the growth of memory from before loading until after a few calls. A page that several processes map counts
in proportion (the proportional set size, PSS, of Linux). The memory of the model and of the libraries themselves
is not included.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
_SERVES = """
import sys
from pathlib import Path
from by_hand import arguments_of
from workloads import workload
import autocompile, onnxruntime, torch
from autocompile.runtime.openvino.library import core

def mebibytes():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024

def told(what):
    print(what, flush=True)
    sys.stdin.readline()

model, inputs = workload(sys.argv[2])
args, kwargs = arguments_of(inputs)
core().available_devices
told("ready")
before = mebibytes()
told("measured")
module = autocompile.load(sys.argv[1], model)
for _ in range(3):
    module(*args, **kwargs)
told("served")
told(mebibytes() - before)
"""


def main() -> None:
    """Print the memory of each process."""
    rec, name, count = sys.argv[1:]
    print(json.dumps(shares(rec, name, int(count))))


def shares(rec: str, name: str, count: int) -> list[float]:
    """Return the MiB that each of `count` processes has for the loaded artifact, while all serve it."""
    processes = [_started(rec, name) for _ in range(count)]
    try:
        for _stage in ("ready", "measured", "served"):
            for process in processes:
                _heard(process)
            for process in processes:
                _go_on(process)
        return [round(float(_heard(process)), 1) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _started(rec: str, name: str) -> Any:
    command = [sys.executable, "-c", _SERVES, rec, name]
    return subprocess.Popen(command, cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _heard(process: Any) -> str:
    """Return the next line of a process. Raises RuntimeError if it has ended."""
    line: str = process.stdout.readline()
    if not line:
        raise RuntimeError("a process that serves ended early")
    return line.strip()


def _go_on(process: Any) -> None:
    process.stdin.write("\n")
    process.stdin.flush()


if __name__ == "__main__":
    main()
