"""Load and run AOTInductor's packages with torch's own class."""

from __future__ import annotations

import shutil
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.torch_version import TorchVersion

from autocompile.runtime.aot.captured import Captured, Run
from autocompile.runtime.aot.package import Package
from autocompile.runtime.base import NotLoadable
from autocompile.runtime.files import Files
from autocompile.scratch import Scratch

# Up to this number of threads can call at once; a program's runners share its weights. For a capture, one runner is
# used that does not query events of the device, because that is not allowed during a capture.
_RUNNERS, _RUNNERS_TO_CAPTURE = 4, 1
_MIXED = "some of its constants are on the CPU, which torch supports from 2.13 on"
# Torch reads a package's metadata through a variable that all threads share.
_LOADING = threading.Lock()


class Code:
    """A program's code in its files; for a GPU a copy of it, because kernels are read when they are first called.

    Raises NotLoadable.
    """

    def __init__(self, package: Package, files: Files) -> None:
        self.path = files.path(package.code)
        if package.device_type != "cpu":
            self._copy = Scratch()
            self.path = _copied(self.path, self._copy.path)
        self._is_captured = package.is_captured

    def runner(self, gpu: int) -> Any:
        """Return another runner of the code, on the GPU of this index, or on the current one for -1.

        Raises NotLoadable.
        """
        return runner_of(self.path, gpu, to_capture=self._is_captured)

    def run_by(self, runner: Any, gpu: int) -> Run:
        """Return a function that makes the calls of a runner, which runs on this GPU."""
        run: Run = runner.run
        if self._is_captured:
            return Captured(run)
        return run if gpu < 0 else partial(_on_gpu, run, gpu)


class Runners:
    """The runners of one program. Each is bound to constants, and can be bound to others when it is no longer used.

    Two runners are loaded at the start, so that the program's files are not needed when it is bound again. `gpu` is the
    device's index, or -1 for the current device. Raises NotLoadable.
    """

    def __init__(self, code: Code, gpu: int) -> None:
        self._code, self._gpu = code, gpu
        self._free = [code.runner(gpu), code.runner(gpu)]

    def bound(self, constants: Mapping[str, torch.Tensor], user: object) -> Run:
        """Return a run on these constants.

        `user` must keep them alive; when it is deleted, the runner is free again.
        """
        runner = self._free.pop() if self._free else self._code.runner(self._gpu)
        bind(runner, constants)
        weakref.finalize(user, self._free.append, runner).atexit = False
        return self._code.run_by(runner, self._gpu)


def _on_gpu(run: Run, gpu: int, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Run on the right GPU: a runner uses the current stream of the current device, whichever GPU it runs on (2.13)."""
    if torch.cuda.current_device() == gpu:
        return run(tensors)
    with torch.cuda.device(gpu):
        return run(tensors)


def runner_of(package: Path, gpu: int = -1, *, to_capture: bool = False) -> Any:
    """Return torch's runner of a package, which is a file or a directory with its contents.

    A directory is not unpacked. With `to_capture`, its calls can be captured as a CUDA graph; then only one thread may
    call it at a time.

    Raises NotLoadable, with torch's first line.

    The class below the public `torch._inductor.aoti_load_package` is used if it exists, because the public function
    imports the compiler and looks for a C++ compiler to probe the processor with.
    """
    loader = getattr(getattr(torch._C, "_aoti", None), "AOTIModelPackageLoader", None)  # noqa: SLF001
    with _LOADING, _told():
        if loader is not None:
            runners = _RUNNERS_TO_CAPTURE if to_capture else _RUNNERS
            return loader(str(package), "model", to_capture, runners, gpu)
        import torch._inductor as inductor  # noqa: PLC0415  only where there is no other way

        return inductor.aoti_load_package(str(package), run_single_threaded=to_capture, device_index=gpu).loader


def bind(runner: Any, constants: Mapping[str, torch.Tensor]) -> None:
    """Make a runner use these constants in place.

    Raises NotLoadable if they are not all of its constants, or if some are on the CPU and others are not, which torch
    before 2.13 does not support.
    """
    mixed = len({tensor.device.type for tensor in constants.values()}) > 1
    with _told(_MIXED if mixed and TorchVersion(torch.__version__) < "2.13" else ""):
        runner.load_constants(dict(constants), use_inactive=False, check_full_update=True, user_managed=True)


def _copied(code: Path, directory: Path) -> Path:
    try:
        if code.is_dir():
            return shutil.copytree(code, directory / code.name)
        return Path(shutil.copy(code, directory))
    except OSError as fault:
        raise NotLoadable(f"{code.name} cannot be read ({fault.strerror})") from fault


@contextmanager
def _told(context: str = "") -> Iterator[None]:
    """Raise NotLoadable with the first line of torch's error. `context` is what probably caused it, or ""."""
    try:
        yield
    except RuntimeError as fault:
        line = next(iter(str(fault).splitlines()), type(fault).__name__)
        raise NotLoadable(f"{context}: {line}" if context else line) from fault
