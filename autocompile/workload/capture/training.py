"""What training mode changes in a model: nothing, in many."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd


def active_in_training(model: Any) -> tuple[str, ...]:
    """The modules that are in training mode and may compute something else for it, by kind and in words.

    Active dropout, statistics of a batch in place of the kept ones, and code of the user's own or of a library that
    asks for `self.training`.
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
    """What training mode makes of this module by itself, or ""."""
    if isinstance(module, _DropoutNd):
        return "active" if module.p > 0 else ""
    if isinstance(module, _NormBase):
        return "using the statistics of each batch" if module.track_running_stats else ""
    if isinstance(module, nn.RNNBase | nn.MultiheadAttention):
        return "dropping out" if module.dropout > 0 else ""
    return "random" if isinstance(module, nn.RReLU) else ""


def _asks(kind: type) -> bool:
    """Whether a method of the class itself, or of one that it is derived from, names `training`."""
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
