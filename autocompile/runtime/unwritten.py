"""Check whether tensors still have the same values, as far as this can be seen without reading all of them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import torch

from autocompile.runtime.placed import InPython
from autocompile.runtime.records import Unknown, Words, slot_of, words_of
from autocompile.runtime.witnesses import witnesses

_versions = attrgetter("_version")


class Unwritten:
    """The present state of tensors: address, layout, number of writes, and a few elements of each.

    The object keeps the tensors and their memory, so that no other tensor can be allocated there unnoticed.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors = list({id(tensor): tensor for tensor in tensors}.values())
        self._memory = [tensor.detach() for tensor in self._tensors]
        self._looks: list[_InPython | Words]
        try:
            # The order matters: each check is safe to read only if those before it hold.
            self._looks = [Words(map(slot_of, self._tensors)), Words(words_of(self._tensors))]
        except Unknown:
            self._looks = [_InPython(self._tensors)]
        self._looks.append(Words(witnesses(self._tensors)))

    def hold(self) -> bool:
        """Return whether the tensors are unchanged. False means that they may have changed."""
        return all(look.hold() for look in self._looks)


class _InPython:
    """What torch reports about each tensor, checked one by one."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._counted = [tensor for tensor in tensors if not tensor.is_inference()]
        self._counts = list(map(_versions, self._counted))
        self._placed = InPython(tensors) if tensors else None

    def hold(self) -> bool:
        try:
            written = list(map(_versions, self._counted)) != self._counts
        except RuntimeError:  # a tensor whose writes are no longer counted
            return False
        return not written and (self._placed is None or self._placed.hold())
