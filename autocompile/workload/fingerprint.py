"""What identifies a workload: structure, code and signatures; not the values of the weights."""

from __future__ import annotations

import hashlib
import types
from collections.abc import Iterable, Sequence

from torch import nn

from autocompile.core.serde import to_json
from autocompile.core.workload import Signature


def model_fingerprint(model: object) -> str:
    """A digest of parameter names, shapes and dtypes, and of the code that runs."""
    digest = hashlib.sha256()
    for line in _description(model):
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()


def workload_fingerprint(model: object, signatures: Sequence[Signature]) -> str:
    """The model's fingerprint together with what it is called with."""
    return hashlib.sha256(model_fingerprint(model).encode() + to_json(list(signatures))).hexdigest()


def _description(model: object) -> Iterable[str]:
    if not isinstance(model, nn.Module):
        yield from _code_lines(getattr(model, "__code__", None) or getattr(type(model).__call__, "__code__", None))
        return
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        yield f"{name} {tuple(tensor.shape)} {tensor.dtype}"
    for name, module in model.named_modules():
        yield f"{name}: {type(module).__module__}.{type(module).__qualname__} {module.training} {module.extra_repr()}"
    for cls in sorted({type(module) for module in model.modules()}, key=lambda c: f"{c.__module__}.{c.__qualname__}"):
        if not cls.__module__.startswith("torch."):
            yield from _code_lines(getattr(cls.forward, "__code__", None))


def _code_lines(code: types.CodeType | None) -> Iterable[str]:
    if code is None:
        return
    yield f"{code.co_name} {code.co_code.hex()} {code.co_names}"
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code_lines(constant)
        elif isinstance(constant, str | int | float | bool | tuple | type(None)):
            yield repr(constant)
