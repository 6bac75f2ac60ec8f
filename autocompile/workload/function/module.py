"""A function of a script as a module, which has the modules that it calls: so all that is done with modules holds."""

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
    """Called like the function, with `held` given. `name` is the function's.

    The modules that it calls are its own by name, and it is in training mode where one of them is. `constants`: a
    digest of the tensors and values that it takes from elsewhere, which a compiled program would have as they were, and
    of which parameters have gradients.
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
        """A call of the function."""
        assert self.constants is not None  # which makes it a fact that calls depend on
        return self.function(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> FunctionModule:
        """A function finds its modules by name, so it is made again, with all that it finds. Tensors go by `memo`."""
        tensors: list[torch.Tensor] = []
        written = io.BytesIO()
        with _by_value(self.function):
            _Writer(written, tensors).dump(self)
        written.seek(0)
        made: FunctionModule = _Reader(written, [copy.deepcopy(tensor, memo) for tensor in tensors]).load()
        return made


class _Writer(pickling.Pickler):
    """Writes all but tensors, which it puts into a list."""

    def __init__(self, file: Any, tensors: list[torch.Tensor]) -> None:
        super().__init__(file)
        self._tensors = tensors

    def persistent_id(self, obj: object) -> int | None:
        if not isinstance(obj, torch.Tensor):
            return None
        self._tensors.append(obj)
        return len(self._tensors) - 1


class _Reader(cloudpickle.pickle.Unpickler):  # type: ignore[misc]
    """Reads what that wrote, with these tensors."""

    def __init__(self, file: Any, tensors: list[torch.Tensor]) -> None:
        super().__init__(file)
        self._tensors = tensors

    def persistent_load(self, pid: Any) -> Any:
        return self._tensors[pid]


@contextmanager
def _by_value(function: Any) -> Iterator[None]:
    """Have what the function's module defines written out, and not named."""
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
    """The module that defines it, where that is the user's own and imported under its name; else None."""
    module = sys.modules.get(getattr(getattr(function, "func", function), "__module__", None) or "")
    file = getattr(module, "__file__", None) or ""
    return None if module is None or module.__name__ == "__main__" or is_installed(file) else module


def _part(path: str, taken: Any) -> str:
    """A name that a module may have, of a path such as `self.model` or `predict[0]`."""
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
