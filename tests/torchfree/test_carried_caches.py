"""The compiler's cache, carried to a machine with a GPU: the files of Triton, and the requirements to build with it."""

import json
from pathlib import Path

import pytest

from autocompile import compilers
from autocompile.runtime.inductor import cache
from autocompile.runtime.inductor.kind import KIND

# The layout of Triton 3.6: a directory for each kernel, named by a digest.
KERNEL = "triton/7TFUEAFX2ZFOHSTHVR6VGOG4FNV4WE6SGTZ2X3Y3KIRXVUQPCHYA"
FILES = ("triton_poi_fused_relu_0.cubin", "triton_poi_fused_relu_0.json", "triton_poi_fused_relu_0.ptx")
GROUP = "__grp__triton_poi_fused_relu_0.json"


@pytest.fixture
def left(tmp_path, monkeypatch):
    """A cache as a process has left it, and where it is carried to."""
    directory = tmp_path / "where it was compiled"
    kernel = directory / KERNEL
    kernel.mkdir(parents=True)
    for name in FILES:
        (kernel / name).write_text(name)
    (kernel / GROUP).write_text(json.dumps({"child_paths": {name: str(kernel / name) for name in FILES}}))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(directory))
    carried = tmp_path / "carried"
    cache.keep(carried)
    return carried


def put_down(carried, directory, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch._inductor.runtime", Runtime(directory))
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    files = {str(path.relative_to(carried)): path.read_bytes() for path in carried.rglob("*") if path.is_file()}
    cache.install(files)


class Runtime:
    """As much of torch's compiler as says where its caches are."""

    def __init__(self, directory):
        self.cache_dir_utils = self
        self.cache_dir = lambda: str(directory)
        self.triton_cache_dir = lambda device: str(directory / "triton" / str(device))


def test_a_kernels_files_are_found_where_the_cache_is_put_down(left, tmp_path, monkeypatch):
    put_down(left, tmp_path / "production", monkeypatch)
    kernel = tmp_path / "production" / "triton/0" / Path(KERNEL).name
    group = json.loads((kernel / GROUP).read_text())["child_paths"]
    assert group == {name: str(kernel / name) for name in FILES}
    assert all(Path(path).read_text() == name for name, path in group.items())


def test_nothing_that_is_carried_names_where_it_was_compiled(left, tmp_path):
    assert sorted(path.name for path in left.rglob("*") if path.is_file()) == sorted([GROUP, *FILES])
    assert not any(str(tmp_path).encode() in path.read_bytes() for path in left.rglob("*") if path.is_file())


@pytest.mark.parametrize("strange", [b"", b"[1]", b"{}", b'{"child_paths": [3]}', b'{"child_paths": {"a": 3}}'])
def test_a_group_of_another_form_is_carried_as_it_is(left, tmp_path, monkeypatch, strange):
    (left / KERNEL / GROUP).write_bytes(strange)
    put_down(left, tmp_path / "production", monkeypatch)
    assert (tmp_path / "production/triton/0" / Path(KERNEL).name / GROUP).read_bytes() == strange


@pytest.mark.parametrize(
    ("variables", "on_path", "headers", "problem"),
    [
        ({}, {"gcc"}, True, ""),
        ({}, {"clang"}, True, ""),
        ({"CC": "ccache cc"}, {"ccache"}, True, ""),
        ({"CC": "icx"}, {"gcc"}, True, "no C compiler"),
        ({}, {"g++"}, True, "no C compiler"),
        ({}, {"gcc"}, False, "Python's headers"),
    ],
)
def test_what_triton_builds_with_is_looked_for_on_a_gpu(monkeypatch, tmp_path, variables, on_path, headers, problem):
    monkeypatch.delenv("CC", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(compilers.shutil, "which", lambda name: name if name in on_path else None)
    monkeypatch.setattr(compilers.sysconfig, "get_paths", lambda _scheme: {"include": str(tmp_path)})
    if headers:
        (tmp_path / "Python.h").touch()
    said = KIND.lacks("cuda")
    assert problem in said
    assert bool(problem) == bool(said)


def test_a_cpu_needs_a_cpp_compiler_and_no_headers(monkeypatch):
    monkeypatch.setattr("autocompile.runtime.inductor.kind.python_headers", lambda: None)
    monkeypatch.setattr("autocompile.runtime.inductor.kind.cpp_compiler", lambda: "g++ 13")
    assert KIND.lacks("cpu") == ""
    monkeypatch.setattr("autocompile.runtime.inductor.kind.cpp_compiler", lambda: "")
    assert "no C++ compiler" in KIND.lacks("cpu")
