"""What identifies a workload: structure, code and signatures; not the values of the weights."""

from __future__ import annotations

import functools
import hashlib
import types
from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

from autocompile.core.serde import to_json
from autocompile.core.workload import Signature

_PLAIN = (str, bytes, int, float, complex, bool, type(None))


def model_fingerprint(model: object) -> str:
    """A digest of parameter names, shapes and dtypes, of plain attributes, and of the code that runs.

    Code is followed into the functions of the user's own that it names, their closures and plain
    globals; libraries' code is taken by name.
    """
    digest = hashlib.sha256()
    for line in _Describer().lines(model):
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()


def workload_fingerprint(model: object, signatures: Sequence[Signature]) -> str:
    """The model's fingerprint together with what it is called with."""
    return hashlib.sha256(model_fingerprint(model).encode() + to_json(list(signatures))).hexdigest()


class _Describer:
    """Walks from a model over what it consists of, each thing once."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def lines(self, thing: Any) -> Iterator[str]:
        if isinstance(thing, _PLAIN):
            yield repr(thing)
        elif isinstance(thing, tuple | list):
            for item in thing[:100]:
                yield from self.lines(item)
        elif id(thing) not in self._seen:
            self._seen.add(id(thing))
            yield from self._opened(thing)

    def _opened(self, thing: Any) -> Iterator[str]:
        if isinstance(thing, nn.Module):
            yield from self._module(thing)
        elif isinstance(thing, functools.partial):
            yield from self.lines([thing.func, thing.args, sorted(thing.keywords.items())])
        elif isinstance(thing, types.MethodType):
            yield from self.lines([thing.__func__, thing.__self__])
        elif isinstance(thing, types.FunctionType):
            yield from self._function(thing)
        else:
            yield getattr(thing, "__qualname__", "") or type(thing).__qualname__

    def _module(self, model: nn.Module) -> Iterator[str]:
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            yield f"{name} {tuple(tensor.shape)} {tensor.dtype}"
        for name, module in model.named_modules():
            yield f"{name}: {type(module).__module__}.{type(module).__qualname__} {module.extra_repr()}"
            for key, value in sorted(vars(module).items()):
                if isinstance(value, _PLAIN) and not key.startswith("_"):
                    yield f"{key}={value!r}"
        classes = {cls for module in model.modules() for cls in type(module).__mro__}
        for cls in sorted(classes, key=lambda c: f"{c.__module__}.{c.__qualname__}"):
            if not cls.__module__.startswith(("torch.", "builtins")):
                members = [member for _name, member in sorted(vars(cls).items())]
                yield from self.lines([member for member in members if isinstance(member, types.FunctionType)])

    def _function(self, function: types.FunctionType) -> Iterator[str]:
        if _is_library(function):
            yield f"{function.__module__}.{function.__qualname__}"
            return
        yield from _code_lines(function.__code__)
        for cell in function.__closure__ or ():
            try:
                yield from self.lines(cell.cell_contents)
            except ValueError:  # a name that is not bound yet
                yield "unbound"
        for name in _names(function.__code__):
            value = function.__globals__.get(name)
            if isinstance(value, (str, int, float, types.FunctionType)):
                yield name
                yield from self.lines(value)


def _code_lines(code: types.CodeType) -> Iterator[str]:
    yield f"{code.co_name} {code.co_code.hex()} {code.co_names}"
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code_lines(constant)
        else:
            yield repr(constant)


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _is_library(function: types.FunctionType) -> bool:
    return "site-packages" in function.__code__.co_filename or (function.__module__ or "").startswith("torch")
