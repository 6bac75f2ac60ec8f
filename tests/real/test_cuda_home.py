"""CUDA headers from wheels, without a toolkit; the tests make the headers and the driver library themselves."""

import subprocess
from types import SimpleNamespace

import pytest
import torch
from torch.utils import cpp_extension

from autocompile.runtime.aot import cuda_home
from autocompile.runtime.aot.runtime import RUNTIME
from autocompile.runtime.aot.usual import NAME
from autocompile.trial import toolchain


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A CUDA build of torch without a toolkit, and wheels that bring every header that torch includes."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", None)
    nvidia = tmp_path / "site-packages" / "nvidia"
    include = nvidia / "cu13" / "include"
    (include / "cccl" / "nv").mkdir(parents=True)
    (include / "cccl" / "nv" / "target").touch()
    for name in cuda_home._headers():
        (include / name).write_text("#include <nv/target>\n")
    spec = SimpleNamespace(submodule_search_locations=[str(nvidia)])
    monkeypatch.setattr(cuda_home, "find_spec", lambda _name: spec)
    driver = tmp_path / "libcuda.so.580.1"
    subprocess.run(["g++", "-shared", "-fPIC", "-x", "c++", "/dev/null", "-o", driver], check=True)
    monkeypatch.setattr(cuda_home, "_driver", lambda: driver)
    return include


def test_torch_includes_headers_of_cuda():
    assert {"cuda.h", "cuda_runtime_api.h"} <= set(cuda_home._headers())


def test_what_wheels_bring_is_compiled_with(machine):
    assert cuda_home.problem() == ""
    with cuda_home.cuda_home():
        assert all((machine / name).exists() for name in cuda_home._headers())
        assert cpp_extension.include_paths("cuda")[-1] == f"{cpp_extension.CUDA_HOME}/include"
    assert cpp_extension.CUDA_HOME is None


def test_a_header_that_is_missing_is_told_with_what_to_do(machine):
    (machine / "cuda.h").unlink()
    said = cuda_home.problem()
    assert "cuda.h: No such file" in said
    assert said.endswith("; install the CUDA toolkit and set CUDA_HOME to its directory")


def test_a_driver_that_cannot_be_linked_is_told(machine, monkeypatch):
    monkeypatch.setattr(cuda_home, "_driver", lambda: None)
    assert "cannot find -lcuda" in cuda_home.problem()


def test_a_compiler_with_its_own_libstdcxx_is_told(machine, monkeypatch, tmp_path):
    own = tmp_path / "g++"
    own.write_text('#!/bin/sh\nexec g++ -static-libstdc++ "$@"\n')
    own.chmod(0o755)
    monkeypatch.setattr("torch._inductor.cpp_builder.get_cpp_compiler", lambda: str(own))
    assert "its own copy of libstdc++" in cuda_home.problem()


def test_without_a_toolkit_and_wheels_it_is_told(machine, monkeypatch):
    monkeypatch.setattr(cuda_home, "find_spec", lambda _name: None)
    assert "CUDA_HOME" in cuda_home.problem()


def test_a_toolkit_that_torch_finds_is_used_as_it_is(machine, monkeypatch, tmp_path):
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", str(tmp_path))
    with cuda_home.cuda_home():
        assert str(tmp_path) == cpp_extension.CUDA_HOME


def test_the_toolchain_check_closes_what_cannot_compile(monkeypatch):
    monkeypatch.setattr(cuda_home, "problem", lambda: "no headers")
    assert toolchain._problems("cuda") == {NAME: "no headers"}
    assert toolchain._problems("cpu") == {}
    assert RUNTIME.problem_on("cpu") == ""
