"""Artifacts are refused on another kind of GPU; the devices are made-up CUDA device properties."""

from types import SimpleNamespace

import pytest
import torch
from msgspec.structs import replace

from autocompile.artifact.mismatch import machine_mismatches, requirements
from autocompile.core.environment import GpuKind
from autocompile.core.manifest import Requirements
from autocompile.runtime.devices import gpu_index
from autocompile.trial import toolchain
from autocompile.trial.phases import Phases
from autocompile.trial.toolchain import check_toolchain
from autocompile.workload.gpu import gpus_among

H100 = SimpleNamespace(name="NVIDIA H100 80GB HBM3", major=9, minor=0, multi_processor_count=132)
H200 = SimpleNamespace(name="NVIDIA H200", major=9, minor=0, multi_processor_count=132)
SLICE = SimpleNamespace(name="NVIDIA H100 80GB HBM3 MIG 1g.10gb", major=9, minor=0, multi_processor_count=16)
L4 = SimpleNamespace(name="NVIDIA L4", major=8, minor=9, multi_processor_count=58)


@pytest.fixture
def machine(monkeypatch):
    """Several GPUs, of which the last is the current one."""

    def has(*gpus):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(gpus))
        monkeypatch.setattr(torch.cuda, "current_device", lambda: len(gpus) - 1)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: gpus[index])

    return has


def packed_here(**index):
    return requirements("inductor", with_python=False, device_type="cuda", **index)


def test_the_gpu_in_use_is_recorded_and_not_the_first(machine):
    machine(L4, H100)
    needed = packed_here()
    assert (needed.capability, needed.gpu, needed.multiprocessors) == ("9.0", H100.name, 132)
    assert packed_here(gpu=0).gpu == L4.name
    cpu = requirements("inductor", with_python=False, device_type="cpu")
    assert (cpu.capability, cpu.gpu, cpu.multiprocessors) == ("", "", 0)


@pytest.mark.parametrize(
    ("here", "start", "name", "said"),
    [
        (H100, "load", None, ""),
        (H100, "cache", None, ""),
        (L4, "load", "capability", "packed for compute capability 9.0, and this is 8.9"),
        (L4, "cache", "capability", "packed for compute capability 9.0, and this is 8.9"),
        (SLICE, "load", "gpu", "and this is NVIDIA H100 80GB HBM3 MIG 1g.10gb with 16"),
        (SLICE, "cache", "gpu", "is not valid on NVIDIA H100 80GB HBM3 MIG 1g.10gb with 16"),
        (H200, "cache", "gpu", "is not valid on NVIDIA H200 with 132"),
        (H200, "load", "figures", "measured on NVIDIA H100 80GB HBM3, and this is NVIDIA H200"),
    ],
    ids=lambda value: value.name if isinstance(value, SimpleNamespace) else str(value)[:20],
)
def test_what_differs_on_another_gpu(machine, here, start, name, said):
    machine(H100)
    needed = packed_here()
    machine(here)
    found = list(machine_mismatches(needed, "cuda", start))
    assert [one.name for one in found] == ([name] if name else [])
    assert all(said in one.message for one in found)
    assert all(one.is_only_noted == (name == "figures") for one in found)


def test_the_model_on_the_second_gpu_is_compared_with_that_one(machine, monkeypatch):
    machine(L4, H100, L4)
    needed = packed_here(gpu=1)
    assert [one.name for one in machine_mismatches(needed, "cuda", "load")] == ["capability"]
    assert not list(machine_mismatches(needed, "cuda", "load", 1))
    on_second = [("weight", SimpleNamespace(device=torch.device("cuda", 1)))]
    monkeypatch.setattr("autocompile.runtime.devices.registered_tensors", lambda _model: on_second)
    assert gpu_index(None, "cuda") == 1
    assert gpu_index(None, "cpu") is None


def test_a_workload_names_the_gpus_that_its_tensors_lie_on_and_no_others(machine):
    machine(L4, H100, SLICE)
    devices = [torch.device(name) for name in ("cuda:1", "cpu", "cuda:2", "cuda:1")]
    assert gpus_among(devices) == (
        GpuKind(H100.name, "9.0", 132),
        GpuKind("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "9.0", 16),
    )
    assert gpus_among([torch.device("cpu")]) == ()


def test_without_a_gpu_that_alone_is_said(machine):
    machine(H100)
    needed = packed_here()
    machine()
    assert [one.name for one in machine_mismatches(needed, "cuda", "load")] == ["device"]


def test_a_configuration_alone_runs_on_any_gpu(machine):
    machine(L4)
    here = requirements("inductor", with_python=False, device_type="cpu")
    unpacked: Requirements = replace(here, capability="", gpu="", multiprocessors=0)
    assert not list(machine_mismatches(unpacked, "cuda", "compile"))


def test_the_compiler_is_tried_on_the_gpu_that_is_used(machine, monkeypatch):
    machine(L4, H100)
    asked = []

    def on(*_range, device):
        asked.append(device)
        raise RuntimeError("there is none")

    monkeypatch.setattr(torch, "linspace", on)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: (L4, H100)[device.index].name)
    monkeypatch.setattr(toolchain, "usable", dict)
    found = check_toolchain("cuda:1", Phases())
    assert asked == [torch.device("cuda", 1)]
    assert found.instruction_set == H100.name
    assert found.problem.startswith("RuntimeError: there is none")
