"""Find the modules whose results training mode changes. In many models there are none."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd


def active_in_training(model: Any) -> tuple[str, ...]:
    """Return the modules in training mode that may compute differently because of it, described by kind.

    These are active dropout, modules that use the statistics of a batch instead of the stored ones, and code of the
    user or of a library that reads `self.training`.
    """
    if not isinstance(model, nn.Module):
        return ()
    known: dict[str, list[str]] = {}
    asking: list[str] = []
    for path, module in model.named_modules():
        if not module.training:
            continue
        effect = _effect(module)
        if effect:
            known.setdefault(f"{type(module).__name__} module# {effect}", []).append(path)
        elif not type(module).__module__.startswith("torch.nn.") and _asks(type(module)):
            asking.append(path)
    found = known | ({"module# asking for self.training": asking} if asking else {})
    return tuple(_words(words, paths) for words, paths in found.items())


def _effect(module: nn.Module) -> str:
    """Return what training mode does in this module itself, or ""."""
    if isinstance(module, _DropoutNd):
        return "active" if module.p > 0 else ""
    if isinstance(module, _NormBase):
        return "using the statistics of each batch" if module.track_running_stats else ""
    if isinstance(module, nn.RNNBase | nn.MultiheadAttention):
        return "dropping out" if module.dropout > 0 else ""
    return "random" if isinstance(module, nn.RReLU) else ""


def _asks(kind: type) -> bool:
    """Return whether a method of the class or of one of its base classes mentions `training`."""
    for base in kind.__mro__:
        if base is nn.Module:
            return False
        if any("training" in _names(code) for code in _codes(base)):
            return True
    return False


def _codes(kind: type) -> Iterator[CodeType]:
    for method in vars(kind).values():
        code = getattr(method, "__code__", None)
        if isinstance(code, CodeType) and code.co_name != "train":
            yield code


def _names(code: CodeType) -> set[str]:
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _words(words: str, paths: list[str]) -> str:
    many, first = len(paths) > 1, paths[0] or "the model itself"
    counted = words.replace("#", "s are" if many else " is")
    return f"{len(paths)} {counted} ({'first: ' * many}{first})"
