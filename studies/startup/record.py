"""Measure how production starts: each way, from the start of a process to its first correct result.

    python studies/startup/record.py            # about 20 minutes; run nothing else meanwhile
    python studies/startup/table.py > studies/startup/README.md

For each model, the ways are prepared once: a carried cache, a mega-cache, an AOTInductor package made with torch's
public functions, and a recommendation that is tuned here. Then they are started in rounds, each start in a new process.
A way that is called fresh has an empty compiler cache, as on a new machine. Starts are appended to results/, so an
interrupted recording can be continued.
"""

import argparse
import compileall
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import autocompile

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

from machine import by_instructions, described, device_type, results_path  # noqa: E402

STRATEGY = """
[search]
max_trials = 3
[dimensions]
runtime = ["aot"]
[finals]
candidates = 1
processes = 2
"""
PREPARE = """
import sys, torch
from pathlib import Path
from workloads import workload
name, directory, step = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
model, inputs = workload(name)
with torch.no_grad():
    if step == "expected":
        torch.save(next(iter(model(**inputs).values())), directory / "expected.pt")
    if step == "compile":
        torch.compile(model)(**inputs)
        (directory / "mega-cache").write_bytes(torch.compiler.save_cache_artifacts()[0])
    if step == "package":
        exported = torch.export.export(model, (), inputs)
        torch._inductor.aoti_compile_and_package(exported, package_path=str(directory / "public.pt2"))
"""
TUNE = """
import sys, autocompile
from workloads import workload
model, inputs = workload(sys.argv[1])
name, output, strategy, budget = sys.argv[1:]
rec = autocompile.optimize(model, inputs, budget, calls=10**7, strategy=strategy, output=output, progress=False)
print(rec.document.artifact.serving, rec.document.winner.label)
"""


def main() -> None:
    """Prepare and start, round by round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", nargs="*", default=["minilm", "mobilenet", "gpt"])
    parser.add_argument("--budget", default="10m")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--directory", type=Path, help="for the prepared files (default: a temporary directory)")
    arguments = parser.parse_args()
    # An installer compiles a package to bytecode. All other packages here were installed, so this one is compiled too.
    compileall.compile_dir(Path(autocompile.__file__).parent, quiet=1)
    path = results_of(arguments.results)
    with tempfile.TemporaryDirectory() as temporary:
        root = arguments.directory or Path(temporary)
        for name in arguments.models:
            directory = prepare(name, root / name, arguments.budget)
            for number in range(arguments.rounds):
                for way in ways():
                    if not known(path, name, way, number):
                        row = {"kind": "start", "model": name, "way": way, "round": number}
                        keep(path, {**row, **start(way, name, directory)})
            row = {"kind": "start", "model": name, "way": "autocompile.load, no compiler on PATH", "round": 0}
            if not known(path, name, row["way"], 0):
                keep(path, {**row, **start("autocompile.load", name, directory, compiler=False)})


def prepare(name: str, directory: Path, budget: str) -> Path:
    """Create the files that the ways start from, except those that exist already."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "strategy.toml").write_text(STRATEGY)
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(directory / "cache")}
    for step, made, variables in (
        ("expected", "expected.pt", {}),
        ("compile", "mega-cache", cache),
        ("package", "public.pt2", {}),
    ):
        if not (directory / made).exists():
            python(["-c", PREPARE, name, str(directory), step], variables)
    if not (directory / "rec" / "manifest.json").exists():
        tuned = ["-c", TUNE, name, str(directory / "rec"), str(directory / "strategy.toml"), budget]
        print(name, python(tuned, {}).strip())
    return directory


def start(way: str, name: str, directory: Path, *, compiler: bool = True) -> dict[str, object]:
    """Start a new process once. Only "carried cache" finds anything in its compiler cache."""
    with tempfile.TemporaryDirectory() as scratch:
        cache = Path(scratch) / "cache"
        if way == "torch.compile, carried cache":
            shutil.copytree(directory / "cache", cache)
        variables = {"TORCHINDUCTOR_CACHE_DIR": str(cache)}
        if not compiler:
            variables |= {"PATH": scratch, "CXX": ""}
        row = json.loads(python(["start.py", way, name, str(directory)], variables).splitlines()[-1])
    print(name, way, {key: round(value, 4) for key, value in row.items()}, flush=True)
    return row


def python(arguments: list[str], variables: dict[str, str]) -> str:
    """Return the standard output of a Python process with this folder prepended to its PYTHONPATH."""
    found = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=HERE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(found), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{arguments[:2]}: {done.stderr[-2000:]}")
    return done.stdout


def ways() -> list[str]:
    """Return the names of the ways, as in start.py."""
    return [
        "eager",
        "torch.compile, fresh",
        "torch.compile, carried cache",
        "torch.compile, mega-cache",
        "aoti_load_package, fresh",
        "autocompile.load",
    ]


def results_of(directory: Path = HERE / "results") -> Path:
    """Return the results file for this kind of machine; its first row describes the machine."""
    kind = by_instructions(device_type())
    return results_path(directory, kind, described("cpu", "cores", "cpu_features", "torch", "python", device=kind))


def known(path: Path, model: str, way: str, number: int) -> bool:
    """Return whether this start is already recorded."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return any((r.get("model"), r.get("way"), r.get("round")) == (model, way, number) for r in rows)


def keep(path: Path, row: dict[str, object]) -> None:
    """Append a row."""
    with path.open("a") as stream:
        stream.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
