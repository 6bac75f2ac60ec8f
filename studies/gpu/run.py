"""Run everything that needs a GPU: the GPU tests, and the GPU part of four studies. Only torch must be installed.

    make gpu WHEELS=folder                   # as much as fits into ten minutes; call it again to continue
    make gpu WHEELS=folder PART=tests        # or portfolio, training, startup, trust
    make gpu WHEELS=folder DEVICE=cpu STEPS=1    # try it without a GPU; the tests are only collected

No network is needed. Missing packages are installed from the folder of wheels into build/gpu, with a copy of
autocompile. Installed packages do not change. Each step saves its results when it ends, in the studies' usual files,
which are named by device and version of torch. They are in `$OUT`/STUDY if OUT is set (starting with a copy of earlier
results), else in studies/STUDY/results. At the end, the script prints a table of all results of this device.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plan import PARTS, STUDIES, TESTS, Step, fits, recorded, steps_of
from table import printed
from wheels import chosen, complaint, installed, requirements, unmet

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "gpu"
TRIED = ROOT / "build" / "gpu-tried"
# Ten minutes, minus the time for ending processes and printing.
LIMIT_S = 560.0
# An interrupted process must end its children within these seconds.
_TO_END_S = 10.0
_LOOK = """
import sys, torch
from autocompile.host import environment
from autocompile.workload.gpu import gpu_kind
here = environment()
on_gpu = sys.argv[1] == "cuda"
if on_gpu and not torch.cuda.is_available():
    sys.exit("torch sees no GPU: " + str(torch.__version__))
name = gpu_kind().name if on_gpu else f"{here.cores}-core-cpu"
print(name.replace(" ", "-") + "-torch" + here.torch.split("+")[0])
"""
_OUTCOME = re.compile(r"^(?P<test>\S+::.+?) (?P<outcome>PASSED|FAILED|ERROR|SKIPPED)\b", re.MULTILINE)


def main() -> None:
    """Prepare, run the steps that fit, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, nargs="*", default=list(PARTS))
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--steps", type=int, default=0, help="the most steps of each part")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="limit for the whole call in seconds")
    arguments = parser.parse_args()
    ends = time.monotonic() + arguments.limit
    problem = prepared(arguments.wheels)
    if problem:
        sys.exit(problem)
    done = subprocess.run(
        [sys.executable, "-c", _LOOK, arguments.device], env=variables(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr.strip() or "torch cannot be imported")
    results = Results(done.stdout.strip().splitlines()[-1], arguments.device)
    for part in arguments.part:
        run_part(part, results, ends, arguments.steps or None)
    print(printed({part: results.rows(part) for part in PARTS}, results.device))


def prepared(folder: Path | None) -> str:
    """Install missing packages and a copy of autocompile into SITE; return a message about what is missing, or ""."""
    shutil.rmtree(SITE, ignore_errors=True)
    shutil.copytree(
        ROOT / "autocompile", SITE / "autocompile", ignore=shutil.ignore_patterns("__pycache__", "strategies")
    )
    shutil.copytree(ROOT / "strategies", SITE / "autocompile" / "strategies")
    needed, here = requirements(ROOT / "pyproject.toml"), installed()
    wheels = chosen(folder.glob("*.whl"), needed, here) if folder and unmet(needed, here) else []
    if wheels:
        options = ["--no-index", "--no-deps", "--no-compile", "--disable-pip-version-check", "--quiet"]
        command = [sys.executable, "-m", "pip", "install", *options, "--target", str(SITE), *map(str, wheels)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return done.stderr.strip()
        print("installed:", ", ".join(wheel.name.split("-")[0] for wheel in wheels), flush=True)
    sys.path.insert(0, str(SITE))
    return complaint(unmet(needed, installed()), folder)


def variables() -> dict[str, str]:
    """Return the environment for child processes, with SITE first on the import path."""
    paths = [str(SITE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}


@dataclass(frozen=True)
class Results:
    """The results of a `device` (its name includes the version of torch), with one file for each part."""

    device: str
    device_type: str

    def directory(self, part: str) -> Path:
        """Return the directory of a part's file; a new directory starts with the earlier results of this GPU."""
        own = ROOT / "studies" / ("gpu" if part == TESTS else part) / "results"
        # Results of a trial without a GPU are kept separately.
        out = os.environ.get("OUT") or ("" if self.device_type == "cuda" else str(TRIED))
        if not out:
            return own
        outside = Path(out) / part
        for path in own.glob("*.jsonl") if not outside.exists() and own.exists() else ():
            if self.device_type == "cuda" and self._is_own(path):
                outside.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, outside)
        return outside

    def rows(self, part: str) -> list[dict[str, Any]]:
        """Return all rows except the first, which describes the machine."""
        lines = [line for path in self._files(part) for line in path.read_text().splitlines()[1:]]
        return [json.loads(line) for line in lines]

    def keep_test(self, test: str, outcome: str) -> None:
        """Save the outcome of a test, replacing an earlier one."""
        directory = self.directory(TESTS)
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{self.device.lower()}.jsonl"
        rows = [row for row in self.rows(TESTS) if row["test"] != test] + [{"test": test, "outcome": outcome}]
        head = {"device": self.device, "device_type": self.device_type}
        path.write_text("".join(json.dumps(row) + "\n" for row in (head, *rows)))

    def _files(self, part: str) -> list[Path]:
        directory = self.directory(part)
        return [path for path in sorted(directory.glob("*.jsonl")) if self._is_own(path)] if directory.exists() else []

    def _is_own(self, path: Path) -> bool:
        """Compare only letters and digits, because each study spells a device differently."""
        name, torch = (re.sub(r"[^a-z0-9]", "", half.lower()) for half in self.device.rsplit("-torch", 1))
        spelled = re.sub(r"[^a-z0-9]", "", path.stem.lower())
        return spelled.endswith(f"torch{torch}") and (self.device_type == "cpu" or spelled.startswith(name))


def run_part(part: str, results: Results, ends: float, most: int | None) -> None:
    """Run the steps of a part that are not done yet, as long as they fit."""
    took_s: list[float] = []
    files = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "gpu").glob("test_*.py"))
    for step in steps_of(part, str(results.directory(part)), files)[:most]:
        if part in STUDIES and step.is_done(recorded(part, results.rows(part))):
            print(f"{part} {step.name}: recorded before", flush=True)
            continue
        left_s = ends - time.monotonic()
        if not fits(step, took_s, left_s):
            print(f"{part} {step.name}: {left_s:.0f} s left, which is too little; call it again", flush=True)
            return
        began = time.monotonic()
        status, said = test(step, results, left_s) if part == TESTS else ran(list(step.arguments), left_s)
        took_s.append(time.monotonic() - began)
        print(
            f"{part} {step.name}: {took_s[-1]:.0f} s, {'done' if status == 0 else f'ended with {status}'}", flush=True
        )
        if status:
            print(said[-3000:], flush=True)


def test(step: Step, results: Results, limit_s: float) -> tuple[int, str]:
    """Run a test file without the tests that have passed on this device; without a GPU, only collect the tests."""
    passed = [row["test"] for row in results.rows(TESTS) if row["outcome"] == "PASSED"]
    deselected = [part for name in passed for part in ("--deselect", name)]
    collects = ["--collect-only", "-q"] if results.device_type == "cpu" else ["-v"]
    options = ["-m", "gpu", "-p", "no:cacheprovider", "--color=no", *collects, *deselected]
    status, said = ran(["-P", "-m", "pytest", *options, *step.arguments], limit_s)
    for found in _OUTCOME.finditer(said):
        results.keep_test(found["test"], found["outcome"])
    return (0 if status == 5 else status), said  # 5: no test was selected, because all have passed before


def ran(arguments: Sequence[str], limit_s: float) -> tuple[int, str]:
    """Return the exit status of a Python process and its output; 124 if it reached the limit and was ended."""
    # A file instead of a pipe: a child that outlives the process would keep a pipe open.
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [sys.executable, *arguments], cwd=ROOT, env=variables(), stdout=said, stderr=said, start_new_session=True
        )
        status = 124
        try:
            status = process.wait(max(1.0, limit_s - _TO_END_S))
        except subprocess.TimeoutExpired:
            ended(process)
        said.seek(0)
        return status, said.read()


def ended(process: "subprocess.Popen[bytes]") -> None:
    """Interrupt the process, so that it can end its children; kill its process group if it does not end."""
    for how in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_TO_END_S)


if __name__ == "__main__":
    main()
