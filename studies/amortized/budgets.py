"""Check that budgets are kept: run the command line ten times and record how long each run took.

    python studies/amortized/budgets.py

The wall time of `autocompile tune` includes the start of the interpreter. A run may exceed its budget by 5% and 5 s.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rows import append, done

RUNS = (
    ("stencil", "30s", 30.0),
    ("mobilenet", "90s", 90.0),
    ("classifier", "30s", 30.0),
    ("encoder", "90s", 90.0),
    ("mobilenet", "5m", 300.0),
    ("encoder", "30s", 30.0),
    ("classifier", "90s", 90.0),
    ("stencil", "30s", 30.0),
    ("stencil", "90s", 90.0),
    ("encoder", "5m", 300.0),
)
SCRIPT = "import workloads\nmodel, inputs = workloads.workload({name!r})\n"


def main() -> None:
    """Run what is not recorded yet."""
    for number in range(len(done("budgets")), len(RUNS)):
        name, budget, budget_s = RUNS[number]
        with tempfile.TemporaryDirectory() as directory:
            script = Path(directory) / "script.py"
            folder = str(Path(__file__).parent)
            script.write_text(f"import sys\nsys.path.insert(0, {folder!r})\n" + SCRIPT.format(name=name))
            command = [sys.executable, "-m", "autocompile", "tune", str(script), "--budget", budget, "--quiet"]
            began = time.perf_counter()
            ended = subprocess.run(
                [*command, "--output", f"{directory}/rec"], capture_output=True, text=True, check=False
            )
            took_s = time.perf_counter() - began
        if ended.returncode not in (0, 1):  # no verdict, so this run does not show whether the budget is kept
            sys.exit(ended.stderr)
        row = {"number": number, "model": name, "budget_s": budget_s, "took_s": round(took_s, 2)}
        append({"kind": "budgets", **row, "status": ended.returncode, "said": ended.stderr.strip()[-200:]})
        print(row, ended.returncode, flush=True)


if __name__ == "__main__":
    main()
