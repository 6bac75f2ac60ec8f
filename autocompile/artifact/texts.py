"""Text generation with a transformers model, whose decode steps are made by something other than the model."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import DynamicCache
from transformers.modeling_outputs import CausalLMOutputWithPast

from autocompile.artifact.standin import stand_in
from autocompile.core.serving import AS_IT_IS, Serving
from autocompile.core.workload import GenerationEntry
from autocompile.workload.generating.cache_argument import cache_field, cache_in, cache_name_in
from autocompile.workload.generating.caches import PreallocatedCache
from autocompile.workload.generating.settings import reason_against
from autocompile.workload.generating.step_inputs import STEP_INPUTS
from autocompile.workload.spans import Spans

# Makes a decode step: a call of a `Decoding`.
Decode = Callable[..., Any]
_CACHE_FIELD = cache_field(CausalLMOutputWithPast)
_NO_STAND_IN = "the model's class cannot be subclassed, which is necessary to intercept its calls"
_OTHER_CACHE = "decode steps of another kind, for example of beam search, or with another cache"


class Texts:
    """Replaces `model` while it generates: its decode steps are made by `decode`.

    If transformers generates token by token, greedily or by sampling (`_sample`), the new cache is replaced by one
    with preallocated memory. The model itself processes prompts and makes all other calls; `left` counts these, by
    reason. `texts` is the number of calls of `generate`, which took `seconds`; the first decode step took `first_s`.
    """

    serving: Serving = AS_IT_IS
    label = ""

    def __init__(self, model: nn.Module, decode: Decode, entry: GenerationEntry) -> None:
        self._model, self._decode, self._entry = model, decode, entry
        self.standing = stand_in(model, self, {"_sample": self._sampling(type(model))})
        self.left: Counter[str] = Counter()
        self.texts, self.tokens, self.seconds = 0, 0, 0.0
        self._steps = Spans()

    def generate(self, arguments: Mapping[str, Any], made: Callable[..., Any]) -> Any:
        """Return the result of `made`, transformers' own `generate`, for these arguments."""
        reason = reason_against(self._model, arguments) or ("" if self.standing is not None else _NO_STAND_IN)
        if reason:
            self.left[f"calls of generate: {reason}"] += 1
            return made(self._model, **arguments)
        began = time.perf_counter()
        generated = made(self.standing, **arguments)
        self.seconds += time.perf_counter() - began
        self.texts += 1
        return generated

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call of the model: a decode step, or another call, such as that for a prompt."""
        cache, tokens = cache_in(kwargs), kwargs.get("input_ids")
        if not isinstance(tokens, torch.Tensor) or args:
            return self._model(*args, **kwargs)
        self.tokens += tokens.shape[0]
        if tokens.shape[1] > 1 or not isinstance(cache, DynamicCache) or not cache.get_seq_length():
            return self._model(*args, **kwargs)
        reason = self._reason_against(cache, kwargs)
        if reason:
            self.left[reason] += 1
            return self._model(*args, **kwargs)
        began = self._steps.begin()
        try:
            return self._step(tokens, cache, kwargs)
        finally:
            self._steps.end(began)

    @property
    def first_s(self) -> float:
        """Seconds of the first decode step, loading included; 0 if there was none."""
        return self._steps.first_s

    @property
    def mean_ms(self) -> float | None:
        """Mean milliseconds of the decode steps after the first one; None if there was none."""
        mean_s = self._steps.mean_s
        return None if mean_s is None else 1e3 * mean_s

    def _sampling(self, kind: Any) -> Callable[..., Any] | None:
        """Return the class's method that generates token by token, with the other cache; None if there is none."""
        before = getattr(kind, "_sample", None)
        if before is None:
            return None

        @wraps(before)
        def sample(model: Any, *args: Any, **kwargs: Any) -> Any:
            cache = cache_in(kwargs)
            if type(cache) is DynamicCache and not cache.get_seq_length():
                kwargs[cache_name_in(kwargs)] = PreallocatedCache(self._entry.layers, self._entry.capacity)
            return before(model, *args, **kwargs)

        return sample

    def _reason_against(self, cache: DynamicCache, kwargs: Mapping[str, Any]) -> str:
        """Return why the model itself has to make this decode step, or ""."""
        if not isinstance(cache, PreallocatedCache):
            return _OTHER_CACHE
        others = {name: repr(value) for name, value in kwargs.items() if name not in STEP_INPUTS and value is not None}
        if others != self._entry.options:
            return f"decode steps with {others}, where it was tuned with {self._entry.options}"
        mask = kwargs.get("attention_mask")
        return "" if mask is None or mask.dim() == 2 else "decode steps with a mask of four dimensions"

    def _step(self, tokens: torch.Tensor, cache: PreallocatedCache, kwargs: Mapping[str, Any]) -> Any:
        cache.make_room()
        length, positions = cache.length, kwargs.get("position_ids")
        if positions is None:
            positions = tokens.new_full(tokens.shape, length)
        mask = cache.mask_of(kwargs.get("attention_mask"))
        logits, added = self._decode(tokens, positions, mask, tokens.new_full((), length), cache.memory)
        cache.append(added)
        return CausalLMOutputWithPast(logits=logits, **{_CACHE_FIELD: cache})
