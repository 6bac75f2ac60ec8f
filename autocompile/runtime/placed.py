"""Check from Python whether tensors are still at the same addresses and with the same layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from autocompile.runtime.tensor_guards import Confirmation, confirmation_of


class InPython:
    """Addresses, sizes, strides and dtypes, checked one by one."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors = tensors
        self._addresses, self._layouts = self._look_where(), self._look_how()
        self._confirms = {mode: self._confirmation(in_inference_mode=mode) for mode in (False, True)}

    def hold(self) -> bool:
        """Return whether nothing has changed."""
        try:
            if self._look_where() != self._addresses:
                return False
            confirmed = self._confirms[torch.is_inference_mode_enabled()](*self._tensors)
            return confirmed or self._look_how() == self._layouts
        except RuntimeError:  # a tensor without its own memory, such as a sparse one
            return False

    def _confirmation(self, *, in_inference_mode: bool) -> Confirmation:
        with torch.inference_mode(in_inference_mode):
            return confirmation_of(self._tensors)

    def _look_where(self) -> list[int]:
        return list(map(torch.Tensor.data_ptr, self._tensors))

    def _look_how(self) -> list[Any]:
        return [
            (tensor.stride(), tensor.shape, tensor.dtype, tensor.is_conj(), tensor.is_neg()) for tensor in self._tensors
        ]
