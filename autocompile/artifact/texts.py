"""Text that a transformers model generates, each decode step of it by something else than the model."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import CausalLMOutputWithPast

from autocompile.artifact.standin import stand_in
from autocompile.core.serving import AS_IT_IS, Serving
from autocompile.core.workload import GenerationEntry
from autocompile.workload.generating.caches import PreallocatedCache
from autocompile.workload.generating.settings import reason_against
from autocompile.workload.generating.step_inputs import STEP_INPUTS

# Makes a decode step: a call of a `Decoding`.
Decode = Callable[..., Any]


class Texts:
    """`generate` of `model`, with a cache in memory that is there beforehand, and each decode step made by `decode`.

    Prompts are computed by the model itself. So are all steps of a call that generates otherwise, beam search for
    example, or with a cache of its own: `left` counts these by reason. The `texts` took `seconds`, and
    their first decode step `first_s`.
    """

    serving: Serving = AS_IT_IS
    label = ""

    def __init__(self, model: nn.Module, decode: Decode, entry: GenerationEntry) -> None:
        self._model, self._decode, self._entry = model, decode, entry
        self._standing = stand_in(model, self)
        self.left: Counter[str] = Counter()
        self.texts, self.tokens, self.seconds, self.first_s = 0, 0, 0.0, 0.0
        self._steps, self._steps_s = 0, 0.0

    def generate(self, arguments: Mapping[str, Any], made: Callable[..., Any]) -> Any:
        """What `made`, transformers' own `generate`, gives for these arguments."""
        reason = reason_against(self._model, arguments)
        if self._standing is None:
            reason = f"no class can be derived from {type(self._model).__name__}, to make its calls pass by"
        if reason:
            self.left[reason] += 1
            return made(self._model, **arguments)
        cache = PreallocatedCache(self._entry.layers, self._entry.capacity)
        began = time.perf_counter()
        generated = made(self._standing, past_key_values=cache, **arguments)
        self.seconds += time.perf_counter() - began
        self.texts += 1
        return generated

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of the model: a decode step, or anything else, such as a prompt's."""
        cache, tokens = kwargs.get("past_key_values"), kwargs.get("input_ids")
        self.tokens += tokens.shape[0] if isinstance(tokens, torch.Tensor) else 0
        if not isinstance(cache, PreallocatedCache) or not isinstance(tokens, torch.Tensor) or args:
            return self._model(*args, **kwargs)
        if tokens.shape[1] > 1 or not cache.length or not self._is_as_tuned(kwargs):
            return self._model(*args, **kwargs)
        began = time.perf_counter()
        try:
            return self._step(tokens, cache, kwargs)
        finally:
            self._took(time.perf_counter() - began)

    def _step(self, tokens: torch.Tensor, cache: PreallocatedCache, kwargs: Mapping[str, Any]) -> Any:
        cache.make_room()
        length, positions = cache.length, kwargs.get("position_ids")
        if positions is None:
            positions = tokens.new_full(tokens.shape, length)
        mask = cache.mask_of(kwargs.get("attention_mask"))
        logits, added = self._decode(tokens, positions, mask, tokens.new_full((), length), cache.memory)
        cache.append(added)
        return CausalLMOutputWithPast(logits=logits, past_key_values=cache)

    def _took(self, seconds: float) -> None:
        if self._steps:
            self._steps_s += seconds
        else:
            self.first_s = seconds
        self._steps += 1

    @property
    def mean_ms(self) -> float | None:
        """Of a decode step after the first one, None if there was none."""
        return 1e3 * self._steps_s / (self._steps - 1) if self._steps > 1 else None

    def _is_as_tuned(self, kwargs: Mapping[str, Any]) -> bool:
        """Whether a decode step is called with nothing but what was seen when it was tuned."""
        others = {name: repr(value) for name, value in kwargs.items() if name not in STEP_INPUTS and value is not None}
        mask = kwargs.get("attention_mask")
        return others == self._entry.options and (mask is None or mask.dim() == 2)
