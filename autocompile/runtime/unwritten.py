"""Whether tensors hold what they held, as far as that can be seen without reading them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import torch

from autocompile.runtime.placed import InPython
from autocompile.runtime.records import Unknown, Words, slot_of, words_of
from autocompile.runtime.witnesses import witnesses

_versions = attrgetter("_version")


class Unwritten:
    """Tensors as they are now: where they lie, how they are laid out, how often they were written to, elements of each.

    They are kept, and so is their memory, so that no other tensor comes to lie there unnoticed.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors = list({id(tensor): tensor for tensor in tensors}.values())
        self._memory = [tensor.detach() for tensor in self._tensors]
        self._looks: list[_InPython | Words]
        try:
            # Each may be read once those before it hold: they tell that it is there still.
            self._looks = [Words(map(slot_of, self._tensors)), Words(words_of(self._tensors))]
        except Unknown:
            self._looks = [_InPython(self._tensors)]
        self._looks.append(Words(witnesses(self._tensors)))

    def hold(self) -> bool:
        """Whether they are as they were; False says that they may not be."""
        return all(look.hold() for look in self._looks)


class _InPython:
    """What torch counts and tells, asked of one tensor after the other."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._counted = [tensor for tensor in tensors if not tensor.is_inference()]
        self._counts = list(map(_versions, self._counted))
        self._placed = InPython(tensors) if tensors else None

    def hold(self) -> bool:
        try:
            written = list(map(_versions, self._counted)) != self._counts
        except RuntimeError:  # one that is not counted any more
            return False
        return not written and (self._placed is None or self._placed.hold())
