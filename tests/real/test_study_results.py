"""File names of study results: existing results are found again, and a GPU is named after the one in use."""

import importlib
import json
import sys
from types import SimpleNamespace

import pytest
import torch
from places import REPOSITORY

STUDIES = REPOSITORY / "studies"
EPYC, XEON = ("AMD EPYC", "avx512_bf16"), ("Intel(R) Xeon(R) Processor", "amx_bf16")


@pytest.fixture
def machine(monkeypatch):
    """The studies' module, and what makes the machine another one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(STUDIES))
        module = importlib.import_module("machine")

    def on(cpu, level, gpus=()):
        here = SimpleNamespace(cpu=cpu, cores=2, torch="2.13.0+cpu", gpus=gpus)
        monkeypatch.setattr(module, "environment", lambda: here)
        monkeypatch.setattr(module, "level", lambda: level)
        return module

    yield on
    del sys.modules["machine"]


@pytest.mark.parametrize(
    ("study", "cpu", "naming"),
    [
        *((name, EPYC, "by_instructions") for name in ("generation", "portfolio", "scripts", "training")),
        *((name, XEON, "by_instructions") for name in ("scripts", "training", "workers")),
        *((name, XEON, "by_cores") for name in ("amortized", "scope")),
        *(("trust", cpu, "by_processor") for cpu in (EPYC, XEON)),
    ],
)
def test_what_was_recorded_on_such_a_machine_is_found(machine, study, cpu, naming):
    here = machine(*cpu)
    recorded = STUDIES / study / "results" / f"{here.named(getattr(here, naming)())}.jsonl"
    assert recorded.exists()


@pytest.mark.parametrize(("space", "cpu"), [("runtimes", ("AMD EPYC", "avx2")), ("settings", XEON)])
def test_so_are_the_spaces_of_the_policy(machine, space, cpu):
    here = machine(*cpu)
    assert (STUDIES / "policy" / "results" / space / here.named(here.by_instructions())).is_dir()


@pytest.mark.parametrize("cpu", [EPYC, XEON])
def test_so_is_the_study_that_names_it_otherwise(machine, cpu):
    here = machine(*cpu)
    kind = here.by_processor().replace(" Processor", "")
    assert (STUDIES / "delivery" / "results" / f"{here.named(kind)}.jsonl").exists()


def test_a_gpu_is_the_one_that_torch_uses_and_not_the_first_that_nvml_tells(machine, monkeypatch):
    used = SimpleNamespace(name="NVIDIA H100 80GB HBM3 MIG 1g.10gb", major=9, minor=0, multi_processor_count=16)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: {1: used}[index])
    here = machine(*EPYC, gpus=(SimpleNamespace(name="NVIDIA L4"),))
    for naming in (here.by_instructions, here.by_processor, here.by_cores):
        assert here.named(naming("cuda")) == "nvidia-h100-80gb-hbm3-mig-1g.10gb-torch2.13.0"
        assert "nvidia" not in here.named(naming("cpu"))


def test_a_file_begins_with_the_machine_and_is_kept(machine, tmp_path):
    here = machine(*EPYC)
    path = here.results_path(tmp_path / "new", here.by_cores(), here.described("cpu", "cores", gpu="none"))
    assert json.loads(path.read_text()) == {"kind": "machine", "cpu": "AMD EPYC", "cores": 2, "gpu": "none"}
    with path.open("a") as stream:
        stream.write("more\n")
    assert here.results_path(tmp_path / "new", here.by_cores(), {}).read_text().endswith("more\n")
