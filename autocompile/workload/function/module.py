"""Wrap a script's function as a module that owns the modules it calls, so that it is handled like any module."""

from __future__ import annotations

import copy
import hashlib
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import cloudpickle
import torch
from torch import nn

from autocompile.workload import pickling
from autocompile.workload.function.holding import Held
from autocompile.workload.function.places import Surroundings
from autocompile.workload.places import is_installed


class FunctionModule(nn.Module):
    """A module that calls the function, with the arguments in `held` given. `name` is the function's name.

    The modules that the function calls are its submodules. It is in training mode if one of them is. `constants` is a
    digest of the tensors and values that the function takes from elsewhere, which a compiled program would contain as
    constants, and of which parameters have gradients.
    """

    def __init__(self, name: str, function: Callable[..., Any], held: Held) -> None:
        super().__init__()
        self.name = name
        self.function = held.given(function)
        around = Surroundings(self.function)
        for path, module in around.modules.items():
            self.add_module(_part(path, self._modules), module)
        self.constants = _digest(around)
        self.training = any(module.training for module in around.modules.values())

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        assert self.constants is not None  # reading it here makes it part of the model's identity
        return self.function(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> FunctionModule:
        """Copy the function with everything that it uses, because it finds its modules by name.

        Tensors are copied with `memo`.
        """
        tensors: list[torch.Tensor] = []
        written = io.BytesIO()
        with _by_value(self.function):
            _Writer(written, tensors).dump(self)
        written.seek(0)
        made: FunctionModule = _Reader(written, [copy.deepcopy(tensor, memo) for tensor in tensors]).load()
        return made


class _Writer(pickling.Pickler):
    """Pickles everything except tensors, which it collects in a list."""

    def __init__(self, file: Any, tensors: list[torch.Tensor]) -> None:
        super().__init__(file)
        self._tensors = tensors

    def persistent_id(self, obj: object) -> int | None:
        if not isinstance(obj, torch.Tensor):
            return None
        self._tensors.append(obj)
        return len(self._tensors) - 1


class _Reader(cloudpickle.pickle.Unpickler):  # type: ignore[misc]
    """Unpickles what `_Writer` wrote, with these tensors."""

    def __init__(self, file: Any, tensors: list[torch.Tensor]) -> None:
        super().__init__(file)
        self._tensors = tensors

    def persistent_load(self, pid: Any) -> Any:
        return self._tensors[pid]


@contextmanager
def _by_value(function: Any) -> Iterator[None]:
    """Pickle the definitions of the function's module by value, not by name."""
    module = home_of(function)
    known = module is None or module.__name__ in cloudpickle.list_registry_pickle_by_value()
    if not known:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        if not known:
            cloudpickle.unregister_pickle_by_value(module)


def home_of(function: Any) -> Any:
    """Return the module that defines the function, if it is the user's own and imported under its name.

    Returns None for other modules and for `__main__`.
    """
    module = sys.modules.get(getattr(getattr(function, "func", function), "__module__", None) or "")
    file = getattr(module, "__file__", None) or ""
    return None if module is None or module.__name__ == "__main__" or is_installed(file) else module


def _part(path: str, taken: Any) -> str:
    """Return a valid submodule name for a path such as `self.model` or `predict[0]`."""
    base = "".join(letter if letter.isalnum() else "_" for letter in path).strip("_") or "model"
    base = f"{base}_" if hasattr(nn.Module, base) or base in ("name", "function", "constants") else base
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}{number}"
    return name


def _digest(around: Surroundings) -> str:
    made = hashlib.sha256("\n".join(around.texts).encode())
    for name, tensor in sorted(around.tensors.items()):
        held = tensor.detach().cpu().contiguous()
        made.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        made.update(held.flatten().view(torch.uint8).numpy().tobytes() if held.numel() else b"")
    return made.hexdigest()[:16]
