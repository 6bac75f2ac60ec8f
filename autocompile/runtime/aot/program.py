"""A compiled program, run on the model's own weights."""

from __future__ import annotations

import io
import threading
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from autocompile.core.program import Program
from autocompile.runtime.aot.package import Package, Weight, package_of
from autocompile.runtime.aot.placement import placement_of
from autocompile.runtime.base import NotLoadable, WeightsDiffer
from autocompile.runtime.model_watch import Watch, tensors_of
from autocompile.runtime.outputs import assembler
from autocompile.scratch import Scratch

# Calls in so many threads run at once; a program's runners share its weights.
_RUNNERS = 4


class _Binding:
    """A program on one set of weights. Weights that are changed in place are followed, as their memory is shared."""

    def __init__(
        self,
        package: Package,
        files: Mapping[str, bytes],
        model: Any,
        watch: Watch,
        lifted: dict[str, torch.Tensor],
        devices: dict[str, torch.device],
    ) -> None:
        self._devices = devices
        self._watch, self._seen = watch, watch.state
        self._registered = tensors_of(model)
        self._attributes: list[tuple[dict[str, Any], str, torch.Tensor]] = []
        self._live: list[torch.Tensor] = []
        found = {weight.name: self._fitting(weight, model) for weight in package.weights if not weight.lifted}
        unpacked = Scratch()
        # Noted before anything is bound: what another thread moves in between is seen at the next call.
        self._lie_as_they_did = placement_of(self._live, _library(package, files, unpacked))
        # Keeps the memory: the program holds addresses only.
        self._constants = {
            weight.name: lifted[weight.name] if weight.lifted else found[weight.name].detach()
            for weight in package.weights
        }
        on_gpu = [constant.device.index for constant in self._constants.values() if constant.device.type == "cuda"]
        try:
            runner = _loaded(files[package.file], unpacked.path, on_gpu[0] if on_gpu else -1)
            runner.load_constants(self._constants, use_inactive=False, check_full_update=True, user_managed=True)
        except RuntimeError as fault:
            raise NotLoadable(str(fault).splitlines()[0]) from fault
        self.run: Callable[[list[torch.Tensor]], list[torch.Tensor]] = runner.run
        # What is mapped into memory needs its file no longer; a GPU's kernels are read when they are first called.
        self._unpacked = None if runner.get_metadata().get("AOTI_DEVICE_KEY") == "cpu" else unpacked

    def is_current(self) -> bool:
        """Whether the model still has the weights that this was bound to, in the same memory, laid out the same."""
        return bool((self._watch.state is self._seen or self._has_its_tensors()) and self._lie_as_they_did())

    def _has_its_tensors(self) -> bool:
        """Looked at only after something was written to the model's modules."""
        state = self._watch.state
        held = all(kept_in.get(name) is tensor for kept_in, name, tensor in self._attributes)
        if held and self._registered.hold():
            self._seen = state
            return True
        return False

    def _fitting(self, weight: Weight, model: Any) -> torch.Tensor:
        tensor = self._found(weight.path, model)
        dtype = getattr(torch, weight.dtype)
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
            raise WeightsDiffer(f"{weight.path} is a {type(tensor).__name__} of layout {tensor.layout}")
        if tensor.device != self._devices.setdefault(weight.path, tensor.device):
            raise WeightsDiffer(f"{weight.path} is on {tensor.device}, and was on {self._devices[weight.path]}")
        if tensor.is_conj() or tensor.is_neg():
            raise WeightsDiffer(f"{weight.path} is a view that is conjugated or negated when it is read")
        if tuple(tensor.shape) != weight.shape or tensor.dtype is not dtype:
            raise WeightsDiffer(f"{weight.path} is {tensor.dtype} {tuple(tensor.shape)}, not {dtype} {weight.shape}")
        if tensor.stride() != weight.stride:
            raise WeightsDiffer(f"{weight.path} has strides {tensor.stride()}, not {weight.stride}")
        for path in weight.tied:
            if self._found(path, model).data_ptr() != tensor.data_ptr():
                raise WeightsDiffer(f"{weight.path} and {path} were one tensor, and are two")
        return tensor

    def _found(self, path: str, model: Any) -> torch.Tensor:
        owner, name = _owner_of(model, path)
        for kept_in in (owner._parameters, owner._buffers, vars(owner)) if isinstance(owner, nn.Module) else ():  # noqa: SLF001
            tensor = kept_in.get(name)
            if isinstance(tensor, torch.Tensor):
                self._live.append(tensor)
                if kept_in is vars(owner):
                    self._attributes.append((kept_in, name, tensor))
                return tensor
        raise WeightsDiffer(f"there is no {path}")


class Native:
    """One compiled program and the model whose weights it takes; binds again when the model's tensors were replaced.

    `files` are what its files hold, by their names; `watch` is the model's, asked before each call.
    Raises WeightsDiffer if the model's weights are not the program's, NotLoadable if the package is none.
    """

    def __init__(self, program: Program, files: Mapping[str, bytes], model: Any, watch: Watch) -> None:
        self._package, self._model, self._watch = _readable(program), model, watch
        self._lifted = _read_constants(self._package, files)
        self._files = {name: files[name] for name in (self._package.file, self._package.placement_file) if name}
        # Where the weights were when it was loaded.
        self._devices: dict[str, torch.device] = {}
        self._binding = self._bind()
        self._binding_again = threading.Lock()
        self._assemble = assembler(program)

    def __call__(self, tensors: list[torch.Tensor]) -> Any:
        """Run on the tensors that the guard gave. Raises WeightsDiffer if the model's weights do not fit any more."""
        binding = self._binding
        if not binding.is_current():
            binding = self._renewed()
        if torch.is_grad_enabled():
            with torch.no_grad():
                return self._assemble(binding.run(tensors))
        return self._assemble(binding.run(tensors))

    def _renewed(self) -> _Binding:
        with self._binding_again:
            if not self._binding.is_current():
                self._binding = self._bind()
            return self._binding

    def _bind(self) -> _Binding:
        return _Binding(self._package, self._files, self._model, self._watch, self._lifted, self._devices)


def _owner_of(model: Any, path: str) -> tuple[Any, str]:
    """The module that holds what lies at `path`, and under which name."""
    *parents, name = path.split(".")
    owner: Any = model
    for part in parents:
        owner = getattr(owner, part, None)
    return owner, name


def runner_of(package: str, index: int = -1) -> Any:
    """What runs a package, a file or a directory with what it holds: torch's own class.

    `index` is the CUDA device's, -1 for the current one.

    The public `torch._inductor.aoti_load_package` is not used where the class beneath it is there: it
    imports the compiler, and looks for a C++ compiler to probe the processor with.
    """
    loader = getattr(getattr(torch._C, "_aoti", None), "AOTIModelPackageLoader", None)  # noqa: SLF001
    if loader is not None:
        return loader(package, "model", False, _RUNNERS, index)
    import torch._inductor as inductor  # noqa: PLC0415  only where there is no other way

    return inductor.aoti_load_package(package, device_index=index).loader


def _loaded(package: bytes, scratch: Path, index: int) -> Any:
    """What runs a package, unpacked in `scratch`: torch itself leaves what it unpacks if the process is killed.

    Raises RuntimeError if torch cannot load it.
    """
    unpacked, whole = scratch / "unpacked", scratch / "program.pt2"
    try:
        with zipfile.ZipFile(io.BytesIO(package)) as archive:
            names = archive.namelist()
            # The rest is source code and what tells about the package itself.
            archive.extractall(unpacked, [name for name in names if "/data/" in name and not name.endswith(".cpp")])
        return runner_of(str(unpacked), index)
    except (RuntimeError, zipfile.BadZipFile):  # before 2.13 torch unpacks for itself; or it says what is wrong
        whole.write_bytes(package)
        return runner_of(str(whole), index)


def _library(package: Package, files: Mapping[str, bytes], scratch: Scratch) -> Path | None:
    """Where the compiled check of the weights' places lies now."""
    if not package.placement_file:
        return None
    scratch.put({"placement.so": files[package.placement_file]})
    return scratch.path / "placement.so"


def _readable(program: Program) -> Package:
    try:
        return package_of(program)
    except ValueError as fault:
        raise NotLoadable(f"its record cannot be read: {fault}") from fault


def _read_constants(package: Package, files: Mapping[str, bytes]) -> dict[str, torch.Tensor]:
    if not package.constants_file:
        return {}
    from safetensors.torch import load  # noqa: PLC0415  few programs have constants of their own

    found = load(files[package.constants_file])
    missing = [weight.name for weight in package.weights if weight.lifted and weight.name not in found]
    if missing:
        raise NotLoadable(f"{package.constants_file} has no constant {missing[0]}")
    return found
