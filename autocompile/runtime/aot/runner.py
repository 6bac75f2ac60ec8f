"""Torch's own class that loads and runs what AOTInductor packaged."""

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

from autocompile.runtime.aot.captured import Captured, Run
from autocompile.runtime.aot.package import Package
from autocompile.runtime.base import NotLoadable
from autocompile.runtime.files import Files
from autocompile.scratch import Scratch

# Calls in so many threads run at once; a program's runners share its weights. What is captured is run by one that asks
# no events of the device, which cannot be done meanwhile.
_RUNNERS, _RUNNERS_TO_CAPTURE = 4, 1
# Torch reads what tells about a package through a variable that all threads share.
_LOADING = threading.Lock()


class Code:
    """A program's code where it lies in its files; for a GPU a copy, as kernels are read when they are first called.

    Raises NotLoadable.
    """

    def __init__(self, package: Package, files: Files) -> None:
        self.path = files.path(package.code)
        if package.device_type != "cpu":
            self._copy = Scratch()
            self.path = _copied(self.path, self._copy.path)
        self._is_captured = package.is_captured

    def runner(self, gpu: int) -> Any:
        """What runs it, once more, on the GPU of this index, -1 for the current one. Raises NotLoadable."""
        return runner_of(self.path, gpu, to_capture=self._is_captured)

    def run_by(self, runner: Any, gpu: int) -> Run:
        """Calls of one of its runners, which runs on this GPU, as they are to be made."""
        run: Run = runner.run
        if self._is_captured:
            return Captured(run)
        return run if gpu < 0 else partial(_on_gpu, run, gpu)


class Runners:
    """Runners of one program, each of which is bound to constants, and to others when it is not used any more.

    Two are loaded at once, so that the program's files are not needed when it is bound again.
    `gpu` is the device's index, -1 for the current one. Raises NotLoadable.
    """

    def __init__(self, code: Code, gpu: int) -> None:
        self._code, self._gpu = code, gpu
        self._free = [code.runner(gpu), code.runner(gpu)]

    def bound(self, constants: Mapping[str, torch.Tensor], user: object) -> Run:
        """Runs on these constants for as long as `user` lives, which keeps them: it has their addresses only."""
        runner = self._free.pop() if self._free else self._code.runner(self._gpu)
        bind(runner, constants)
        weakref.finalize(user, self._free.append, runner).atexit = False
        return self._code.run_by(runner, self._gpu)


def _on_gpu(run: Run, gpu: int, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """A runner takes the current stream of the current device, whichever GPU it runs on (2.13)."""
    if torch.cuda.current_device() == gpu:
        return run(tensors)
    with torch.cuda.device(gpu):
        return run(tensors)


def runner_of(package: Path, gpu: int = -1, *, to_capture: bool = False) -> Any:
    """What runs a package, a file or a directory with what it holds. Nothing is unpacked of a directory.

    `to_capture`: so that a CUDA graph can be captured of its calls, which then are one thread's at a time.

    Raises NotLoadable, with torch's first line.

    The public `torch._inductor.aoti_load_package` is not used where the class beneath it is there: it
    imports the compiler, and looks for a C++ compiler to probe the processor with.
    """
    loader = getattr(getattr(torch._C, "_aoti", None), "AOTIModelPackageLoader", None)  # noqa: SLF001
    with _LOADING, _told():
        if loader is not None:
            runners = _RUNNERS_TO_CAPTURE if to_capture else _RUNNERS
            return loader(str(package), "model", to_capture, runners, gpu)
        import torch._inductor as inductor  # noqa: PLC0415  only where there is no other way

        return inductor.aoti_load_package(str(package), run_single_threaded=to_capture, device_index=gpu).loader


def bind(runner: Any, constants: Mapping[str, torch.Tensor]) -> None:
    """Have a runner take these constants where they lie. Raises NotLoadable if they are not all that it has."""
    with _told():
        runner.load_constants(dict(constants), use_inactive=False, check_full_update=True, user_managed=True)


def _copied(code: Path, directory: Path) -> Path:
    try:
        if code.is_dir():
            return shutil.copytree(code, directory / code.name)
        return Path(shutil.copy(code, directory))
    except OSError as fault:
        raise NotLoadable(f"{code.name} cannot be read ({fault.strerror})") from fault


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except RuntimeError as fault:
        raise NotLoadable(next(iter(str(fault).splitlines()), type(fault).__name__)) from fault
