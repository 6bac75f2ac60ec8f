"""The call for a prompt, as a separate model: all tokens in, the next token's logits and the cache's content out."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicLayer

from autocompile.workload.generating.cache_argument import cache_argument
from autocompile.workload.generating.caches import FirstLayer, Pair


class Prompting(nn.Module):
    """The call of `model` for a prompt, which transformers' `generate` makes before the first decode step.

    It changes nothing: the content of the cache, of `layers` layers, is an output. `options` are further arguments of
    each call of the model.
    """

    def __init__(self, model: nn.Module, layers: int, options: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.model = model
        self._layers, self._options = layers, dict(options or {})
        self._cache = cache_argument(model)
        self._has_positions = "position_ids" in inspect.signature(model.forward).parameters
        self.training = model.training  # only of this module; `train` would change all parts of the model

    def forward(
        self, tokens: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, tuple[Pair, ...]]:
        """Return the logits, and the prompt's keys and values, [batch, heads, tokens, width] each.

        `tokens`, `positions` and `mask` are [batch, tokens]. `mask`, bool, tells which tokens are not padding; None
        means all of them. The logits are [batch, 1, vocabulary], or of all tokens if the model computes those.
        """
        traced = torch.compiler.is_compiling()
        layers = [FirstLayer() if traced else DynamicLayer() for _ in range(self._layers)]
        positioned = {"position_ids": positions} if self._has_positions else {}
        given = {"use_cache": True, "return_dict": True, **positioned, **self._options}
        given[self._cache] = Cache(layers=layers)
        attended = mask if traced or mask is None else mask.long()
        output = self.model(input_ids=tokens, attention_mask=attended, **given)
        return output.logits, tuple((layer.keys, layer.values) for layer in layers)
