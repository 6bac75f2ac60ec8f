"""The example training scripts, unmodified: each is tuned and run with its recommendation."""

import re
import subprocess
import sys
import time

import pytest
import torch
from places import REPOSITORY
from safetensors.torch import load_file

AUTOCOMPILE = [sys.executable, "-m", "autocompile"]
SCRIPTS = REPOSITORY / "examples" / "scripts"
# The same numbers for every winner, except for the order of summation.
QUICK = """
[search]
max_trials = 2
[dimensions]
runtime = ['eager']
amp = ['off']
threads = [0]
memory_format = ['preserve']
activations = ['kept']
optimizer = ['fused', 'foreach']
[screening]
precision = 0.2
limit_s = 0.5
[finals]
candidates = 1
processes = 1
limit_s = 0.5
"""
# For each script: arguments with which training takes far longer than evaluation, the class that is tuned, and the
# number of its steps (None if it depends on rounding).
SMALL = {
    "images": ("--epochs 1 --samples 256 --batch-size 8 --output made", "Net", 32),
    "sequences": ("--steps 20 --batch-size 4 --length 8 --width 16 --layers 1", "Model", 20),
    "gan": ("--steps 50 --batch-size 16 --width 16", "(Generator|Discriminator)", 50),
    "trainer": (
        "--epochs 2 --samples 64 --length 8 --width 16 --bf16 --output made",
        "BertForSequenceClassification",
        8,
    ),
    "denoise": ("--epochs 2 --samples 256 --width 32 --output made", "Denoiser", 8),
    "waves": ("--steps 1 --length 8 --width 8 --waves 8 --further 4", "Forecaster", None),
    "fit": ("--steps 1", "Sequential", None),
}
# Scripts whose optimizer calls a closure for the loss.
BY_CLOSURE = ("waves", "fit")
# Tolerances for the output of a script that computes in bfloat16, compared with full precision. An accuracy may be the
# mean over a few texts only.
NEAR = {"trainer": {"rel": 5e-2, "abs": 0.15}}
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def ran(*command, cwd):
    cwd.mkdir(exist_ok=True)
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, cwd=cwd, timeout=500, check=False, encoding="utf-8"
    )


def words_and_numbers(printed):
    """What a script prints, apart from how fast it was."""
    text = re.sub(r"'[a-z_]*(?:runtime|per_second)': '[^']*'", "", printed)
    return NUMBER.sub("#", text), list(map(float, NUMBER.findall(text)))


def files(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def keys(tree, prefix=""):
    """The names of all that a checkpoint holds."""
    if not isinstance(tree, dict):
        return {prefix}
    return set().union(*(keys(value, f"{prefix}.{name}") for name, value in tree.items()), {prefix})


def held(path):
    """What a file of a model's has, by name; None for what is no such file."""
    if path.suffix == ".safetensors":
        return load_file(path)
    # The file is safe to unpickle, because the test has just written it.
    return torch.load(path, weights_only=False) if path.suffix in {".pt", ".pth", ".ckpt"} else None


@pytest.mark.parametrize("name", SMALL)
def test_a_script_that_trains_is_tuned_and_run_as_it_is(name, tmp_path):
    script, (arguments, kind, steps) = SCRIPTS / f"{name}.py", SMALL[name]
    # Checkpoints contain their own path.
    plain, here = tmp_path / "plain", tmp_path / "here"
    called = ran(sys.executable, script, *arguments.split(), cwd=here)
    assert called.returncode == 0, called.stderr
    here.rename(plain)
    (tmp_path / "quick.toml").write_text(QUICK)
    tune = (*AUTOCOMPILE, "tune", script, "--budget", "400s", "--strategy", tmp_path / "quick.toml", "--output")
    tuned = ran(*tune, tmp_path / "rec", "--", *arguments.split(), cwd=here)
    assert tuned.returncode == 0, tuned.stderr
    many = "closure calls" if name in BY_CLOSURE else "steps"
    trained = re.search(rf"{kind} was trained in (?P<count>\d+) {many}".replace(" ", r"\s+"), tuned.stdout)
    count = int(trained["count"])
    assert count == (steps or count)
    assert not files(here)

    began = time.monotonic()
    run = ran(*AUTOCOMPILE, "run", tmp_path / "rec", script, *arguments.split(), cwd=here)
    took = time.monotonic() - began
    assert run.returncode == 0, run.stderr
    again = r"\d+" if steps is None else count
    assert re.search(rf"^autocompile: {kind} as eager.*: {many} {again} by eager$", run.stderr, re.MULTILINE)
    assert "not as recommended" not in run.stderr
    assert float(re.search(r"([-+.e\d]+) s for the first one", run.stderr)[1]) <= took
    (said, told), (also_said, also_told) = words_and_numbers(called.stdout), words_and_numbers(run.stdout)
    assert also_said == said
    assert also_told == pytest.approx(told, **NEAR.get(name, {"rel": 1e-2, "abs": 1e-3}))
    assert files(here) == files(plain)
    for file in files(plain):
        assert keys(held(here / file)) == keys(held(plain / file)), file
