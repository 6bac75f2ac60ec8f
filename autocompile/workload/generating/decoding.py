"""The decode step of a model that generates text, as a separate model: one token in, the next token's logits out."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache

from autocompile.workload.generating.cache_argument import cache_argument
from autocompile.workload.generating.caches import Pair, TracedLayer, grown

Caches = tuple[Pair, ...]


class Decoding(nn.Module):
    """One decode step of `model`, which transformers' `generate` does for each token after the prompt.

    It changes nothing: what is to be added to the cache is an output. Not compiled, it computes as `generate` does,
    with a cache that grows by one token each time. Compiled, it computes over the whole memory of the cache, whose size
    is fixed. `options` are further arguments of each call of the model.
    """

    def __init__(self, model: nn.Module, options: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.model = model
        self._options = dict(options or {})
        self._cache = cache_argument(model)
        self._has_positions = "position_ids" in inspect.signature(model.forward).parameters
        self.training = model.training  # only of this module; `train` would change all parts of the model

    def forward(
        self, tokens: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, length: torch.Tensor, caches: Caches
    ) -> tuple[torch.Tensor, Caches]:
        """Return the logits, [batch, 1, vocabulary], and the token's keys and values, [batch, heads, 1, width] each.

        `tokens` and `positions` are [batch, 1]. `length`, a scalar, is the number of tokens in the `caches`. `mask`,
        bool, [batch, capacity], tells which tokens are attended to. `caches` are [batch, heads, capacity, width] each.
        """
        positioned = {"position_ids": positions} if self._has_positions else {}
        given = {"use_cache": True, "return_dict": True, **positioned, **self._options}
        if torch.compiler.is_compiling():
            traced = [TracedLayer(keys, values, length) for keys, values in caches]
            given[self._cache] = Cache(layers=traced)
            output = self.model(input_ids=tokens, attention_mask=mask, **given)
            return output.logits, tuple(layer.added for layer in traced)  # type: ignore[misc]  # all are filled by then
        held = int(length)
        layers = [grown(keys[:, :, :held], values[:, :, :held]) for keys, values in caches]
        seen = mask[:, : held + 1]
        attended = None if bool(seen.all()) else seen.long()
        given[self._cache] = Cache(layers=layers)
        output = self.model(input_ids=tokens, attention_mask=attended, **given)
        return output.logits, tuple((layer.keys[:, :, -1:], layer.values[:, :, -1:]) for layer in layers)
