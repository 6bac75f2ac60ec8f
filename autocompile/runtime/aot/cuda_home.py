"""Find CUDA's headers for AOTInductor: those of a toolkit, or those of the wheels that torch depends on.

Torch looks only for a toolkit (`CUDA_HOME`, `nvcc` on the PATH, `/usr/local/cuda`; 2.13, `torch.utils.cpp_extension`),
although the wheels that it depends on contain most headers.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from autocompile.runtime.aot.linking import linking_problem

_LIMIT_S = 60.0
_REMEDY = "install the CUDA toolkit and set CUDA_HOME to its directory"
_INCLUDED = re.compile(r"#include <(cuda\w*\.h)>")
# Torch's own headers that include headers of CUDA.
_TORCH_HEADERS = ("aoti_runtime/device_utils.h", "aoti_runtime/utils_cuda.h")
# It needs libstdc++, as every program does.
_CODE = "#include <string>\nint length(const char* words) { return std::string(words).append(words).size(); }\n"


@contextmanager
def cuda_home() -> Iterator[None]:
    """Make torch find CUDA's headers in wheels meanwhile, if there is no toolkit and wheels contain them."""
    from torch.utils import cpp_extension  # noqa: PLC0415  only needed to compile

    extension: Any = cpp_extension
    includes = [] if torch.version.cuda is None or extension.CUDA_HOME else _of_wheels()
    if not includes:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="autocompile-cuda-") as home:
        _put_together(Path(home), includes)
        extension.CUDA_HOME = home
        try:
            yield
        finally:
            extension.CUDA_HOME = None


def problem() -> str:
    """Return why nothing can be compiled ahead for CUDA here and what to do, or "". Compiles and links a few lines."""
    from torch._inductor.cpp_builder import get_cpp_compiler  # noqa: PLC0415  imports the compiler
    from torch.utils import cpp_extension  # noqa: PLC0415

    with cuda_home(), tempfile.TemporaryDirectory(prefix="autocompile-cuda-") as scratch:
        source = Path(scratch) / "probe.cpp"
        source.write_text("".join(f"#include <{name}>\n" for name in _headers()) + _CODE)
        try:
            includes = [f"-I{path}" for path in cpp_extension.include_paths("cuda")]
            libraries = [f"-L{path}{stubs}" for path in cpp_extension.library_paths("cuda") for stubs in ("", "/stubs")]
            command = [get_cpp_compiler(), "-std=c++17", "-shared", "-fPIC", str(source), *includes, *libraries]
            subprocess.run(
                [*command, "-lcuda", "-o", f"{scratch}/probe.so"],
                capture_output=True, text=True, timeout=_LIMIT_S, check=True,
            )  # fmt: skip
        except subprocess.CalledProcessError as fault:
            lines = [line for line in fault.stderr.splitlines() if "error" in line or "cannot find" in line]
            said = (lines or fault.stderr.splitlines() or [str(fault)])[0].replace(scratch, "")
            return f"AOTInductor cannot compile for CUDA ({said.strip()}); {_REMEDY}"
        except (OSError, RuntimeError, subprocess.TimeoutExpired) as fault:
            said = next(iter(str(fault).splitlines()), type(fault).__name__)
            return f"AOTInductor cannot compile for CUDA ({said}); {_REMEDY}"
        return linking_problem(Path(scratch) / "probe.so")


def _headers() -> list[str]:
    """Return the names of CUDA's headers that the installed torch's headers include."""
    inductor = Path(torch.__file__).parent / "include" / "torch" / "csrc" / "inductor"
    texts = [(inductor / name).read_text() for name in _TORCH_HEADERS if (inductor / name).exists()]
    return list(dict.fromkeys(name for text in texts for name in _INCLUDED.findall(text)))


def _of_wheels() -> list[Path]:
    """Return the header directories in the `nvidia` packages: one from CUDA 13 on, one for each library before."""
    spec = find_spec("nvidia")
    bases = [Path(base) for base in (spec.submodule_search_locations or ())] if spec else []
    found = [directory for base in bases for directory in sorted(base.glob("*/include"))]
    return [*found, *(one / "cccl" for one in found if (one / "cccl").is_dir())]


def _put_together(home: Path, includes: list[Path]) -> None:
    """Make a toolkit's directory layout from links to the headers and to the driver's library, which is linked to."""
    (home / "include").mkdir()
    (home / "lib64").mkdir()
    for directory in includes:
        for entry in directory.iterdir():
            link = home / "include" / entry.name
            if not link.is_symlink():
                link.symlink_to(entry)
    driver = _driver()
    if driver is not None:
        (home / "lib64" / "libcuda.so").symlink_to(driver)


def _driver() -> Path | None:
    """Return the driver's library that this process has loaded.

    Without a toolkit it is not found under any other name.
    """
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    paths = (Path(line.split(maxsplit=5)[5]) for line in lines if "/libcuda.so" in line)
    return next(paths, None)
