"""The plan of `make gpu`: what it installs, which steps remain and fit, and its table."""

import importlib
import json
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
from places import REPOSITORY

NAMES = ("plan", "wheels", "table", "run")


@pytest.fixture(scope="module")
def gpu():
    """Its modules, which find each other by their names alone."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pip's own, where setuptools was imported before it
        patch.syspath_prepend(str(REPOSITORY / "studies" / "gpu"))
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in NAMES})
    for name in (*NAMES, "replay"):
        sys.modules.pop(name, None)


# As a machine has them where torch and its friends are installed, and nothing of this package's own.
HERE = {
    "torch": "2.11.0+cu130", "psutil": "7.2.1", "nvidia-ml-py": "13.590.48", "cloudpickle": "3.1.2", "numpy": "2.5.2",
    "scipy": "1.17.0", "typer": "0.21.0", "rich": "14.2.0", "transformers": "5.17.0", "pytest": "9.1.0",
    "pytest-timeout": "2.4.0", "pyyaml": "6.0.3",
}  # fmt: skip
FOLDER = [
    "alembic-1.17.2-py3-none-any.whl",
    "colorlog-6.10.1-py2.py3-none-any.whl",
    "greenlet-3.3.0-cp312-cp312-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl",
    "mako-1.3.10-py3-none-any.whl",
    "msgspec-0.20.0-cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
    "optuna-5.0.0-py3-none-any.whl",
    "sqlalchemy-2.0.45-cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
]


def of(gpu):
    return gpu.wheels.requirements(REPOSITORY / "pyproject.toml")


def test_what_is_missing_is_told_with_what_to_do(gpu):
    missing = gpu.wheels.unmet(of(gpu), HERE)
    assert sorted(one.name for one in missing) == ["msgspec", "optuna", "sqlalchemy"]
    said = gpu.wheels.complaint(missing, None)
    assert "optuna<6,>=5.0" in said
    assert "make gpu WHEELS=folder" in said
    assert "not in /wheels: " in gpu.wheels.complaint(missing, Path("/wheels"))
    assert gpu.wheels.complaint([], None) == ""


def test_a_folder_brings_what_is_missing_and_nothing_that_is_there(gpu):
    others = ["torch-2.13.0-cp312-cp312-manylinux_2_28_x86_64.whl", "rich-14.3.0-py3-none-any.whl"]
    wheels = [Path("/wheels") / name for name in (*FOLDER, *others)]
    assert [wheel.name for wheel in gpu.wheels.chosen(wheels, of(gpu), HERE)] == FOLDER


def test_what_is_too_old_is_replaced_from_the_folder(gpu):
    wheels = [Path("rich-14.3.0-py3-none-any.whl")]
    assert gpu.wheels.chosen(wheels, of(gpu), {**HERE, "rich": "12.0"}) == wheels


def test_a_build_of_torch_for_cuda_is_the_version_that_it_is_of(gpu):
    assert "torch" not in [one.name for one in gpu.wheels.unmet(of(gpu), HERE)]
    assert "torch" in [one.name for one in gpu.wheels.unmet(of(gpu), {**HERE, "torch": "2.10.0+cu128"})]


def test_every_step_fits_into_a_call(gpu):
    for part in gpu.plan.PARTS:
        steps = gpu.plan.steps_of(part, "results", ["tests/gpu/test_cuda.py"])
        assert steps
        assert all(0 < step.takes_s < gpu.run.LIMIT_S < 600 for step in steps), part
        assert all((REPOSITORY / step.arguments[0]).exists() for step in steps)


def test_the_studies_take_the_options_that_they_are_given(gpu):
    for part in gpu.plan.STUDIES:
        step = gpu.plan.steps_of(part, "results")[0]
        script = (REPOSITORY / step.arguments[0]).read_text()
        assert all(f'"{word}"' in script for word in step.arguments if word.startswith("--")), part


@pytest.mark.parametrize(
    ("part", "rows", "left"),
    [
        ("portfolio", [{"workload": "vit"}, {"workload": "stencil"}], ["decoder", "cnn", "mlp", "unet"]),
        ("training", [{"workload": "gpt"}], ["vit", "resnet18_small", "transformer"]),
        ("startup", [{"model": "gpt", "way": "autocompile.load, no compiler on PATH", "round": 0}], ["mobilenet"]),
        ("startup", [{"model": "gpt", "way": "eager", "round": 0}], ["gpt", "mobilenet"]),
        ("trust", [{"number": n} for n in range(4)] + [{"kind": "coverage"}],
         ["verdicts up to 6", "verdicts up to 9", "verdicts up to 12"]),
    ],
)  # fmt: skip
def test_what_is_recorded_is_not_run_again(gpu, part, rows, left):
    recorded = gpu.plan.recorded(part, rows)
    assert [step.name for step in gpu.plan.steps_of(part, "results") if not step.is_done(recorded)] == left


def test_a_step_that_does_not_fit_is_left_for_the_next_call(gpu):
    step = gpu.plan.steps_of("trust", "results")[0]
    assert gpu.plan.fits(step, [], step.takes_s)
    assert not gpu.plan.fits(step, [], step.takes_s - 1)
    assert gpu.plan.fits(step, [20.0, 30.0], 30.0), "how long it takes here is known by then"
    assert not gpu.plan.fits(step, [20.0, 31.0], 30.0)


def written(directory, name, *rows):
    directory.mkdir(parents=True)
    (directory / name).write_text("".join(json.dumps(row) + "\n" for row in ({"machine": 1}, *rows)))


def test_results_outside_begin_with_what_was_recorded_in_place(gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu.run, "ROOT", tmp_path / "repository")
    results = gpu.run.Results("NVIDIA-H100-80GB-HBM3-torch2.11.0", "cuda")
    own = tmp_path / "repository" / "studies" / "training" / "results"
    written(own, "nvidia-h100-80gb-hbm3-torch2.11.0.jsonl", {"workload": "gpt"})
    (own / "nvidia-h200-torch2.11.0.jsonl").write_text('{}\n{"workload": "vit"}\n')
    monkeypatch.delenv("OUT", raising=False)
    assert results.rows("training") == [{"workload": "gpt"}]
    assert results.directory("training") == own
    monkeypatch.setenv("OUT", str(tmp_path / "out"))
    assert results.rows("training") == [{"workload": "gpt"}]
    assert [path.name for path in (tmp_path / "out" / "training").iterdir()] == [
        "nvidia-h100-80gb-hbm3-torch2.11.0.jsonl"
    ]


def test_what_is_tried_without_a_gpu_begins_with_nothing(gpu, tmp_path, monkeypatch):
    """Processors go by no name there, so what other machines have recorded would be taken for this one's."""
    monkeypatch.setattr(gpu.run, "ROOT", tmp_path)
    monkeypatch.setattr(gpu.run, "TRIED", tmp_path / "tried")
    monkeypatch.delenv("OUT", raising=False)
    own = tmp_path / "studies" / "training" / "results"
    written(own, "amd-epyc-2-cores-torch2.13.0.jsonl", {"workload": "gpt"})
    results = gpu.run.Results("2-core-cpu-torch2.13.0", "cpu")
    assert results.rows("training") == []
    written(tmp_path / "tried" / "training", "amd-epyc-2-cores-torch2.13.0.jsonl", {"workload": "vit"})
    assert results.rows("training") == [{"workload": "vit"}]


def test_the_last_outcome_of_a_test_is_the_one_that_is_kept(gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu.run, "ROOT", tmp_path / "repository")
    monkeypatch.setenv("OUT", str(tmp_path))
    results = gpu.run.Results("NVIDIA-H200-torch2.11.0", "cuda")
    for outcome in ("FAILED", "PASSED"):
        results.keep_test("tests/gpu/test_cuda.py::test_one[a b]", outcome)
    results.keep_test("tests/gpu/test_cuda.py::test_two", "FAILED")
    kept = {row["test"].split("::")[1]: row["outcome"] for row in results.rows("tests")}
    assert kept == {"test_one[a b]": "PASSED", "test_two": "FAILED"}


@pytest.mark.parametrize(
    ("code", "limit_s", "status", "said"),
    [
        ("print('all of it')", 60, 0, "all of it"),
        ("import sys; print('some'); sys.exit(3)", 60, 3, "some"),
        ("import time; time.sleep(600)", 0, 124, ""),
    ],
)
def test_a_process_ends_at_its_limit_and_what_it_said_is_kept(gpu, code, limit_s, status, said):
    found, text = gpu.run.ran(["-c", code], limit_s)
    assert found == status
    assert said in text


def test_what_pytest_prints_is_read(gpu):
    said = "tests/gpu/test_cuda.py::test_one[a-b] PASSED      [ 5%]\nFAILED tests/gpu/test_cuda.py::test_two - x\n"
    assert [found.groups() for found in gpu.run._OUTCOME.finditer(said)] == [
        ("tests/gpu/test_cuda.py::test_one[a-b]", "PASSED")
    ]


def test_the_table_has_every_part(gpu):
    one = {"speedup": 2.0, "low": 1.9, "high": 2.1}
    rows = {
        "tests": [{"test": "f::a", "outcome": "PASSED"}, {"test": "f::b", "outcome": "FAILED"}],
        "portfolio": [
            {"workload": "vit", "winner": "inductor", "startup_s": 0.5, "ways": {"eager": one, "autocompile": one}}
        ],
        "training": [
            {"workload": "gpt", "verdict": {"winner": "eager amp=bf16"}, "ways": {"fused": {"speedup": 1.2}},
             "ours": [{"speedup": 1.5}]},
            {"workload": "vit", "verdict": {"failed": "no"}, "ways": {}, "ours": [{"failed": "no kernel image"}]},
        ],
        "startup": [
            {"kind": "start", "model": "gpt", "way": "autocompile.load", "round": 0, "load_s": 0.03,
             "first_call_s": 0.02, "right": True}
        ],
        "trust": [],
    }  # fmt: skip
    said = gpu.table.printed(rows, "NVIDIA-H200-torch2.11.0")
    for part in ("NVIDIA-H200", "2.00x (1.90 to 2.10), inductor", "1.50x, eager amp=bf16", "fused 1.20x",
                 "failed: no kernel image", "0.05 s", "nothing is recorded"):  # fmt: skip
        assert part in said, part
    assert len({len(line) for line in said.splitlines() if line.startswith("|")}) == 1


def test_false_wins_are_judged_as_the_product_judges(gpu):
    def verdict(ratio):
        return {
            "kind": "aa", "noisy": 0,
            "processes": {"baseline": [[0.0, -0.01, 0.01]] * 3, "search": [[ratio, ratio - 0.01, ratio + 0.01]] * 3},
        }  # fmt: skip

    assert "| 0 false wins" in gpu.table.printed({"trust": [verdict(0.0)]}, "")
    assert "| 1 false wins" in gpu.table.printed({"trust": [verdict(0.0), verdict(-0.7)]}, "")
