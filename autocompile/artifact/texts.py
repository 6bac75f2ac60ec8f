"""Text generation with a transformers model, whose decode steps or prompts are computed by something else."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
from autocompile.workload.generating.seen_prompts import options_of, prompt_of
from autocompile.workload.generating.settings import reason_against
from autocompile.workload.generating.step_inputs import STEP_INPUTS
from autocompile.workload.spans import Spans

_CACHE_FIELD = cache_field(CausalLMOutputWithPast)
_NO_STAND_IN = "the model's class cannot be subclassed, which is necessary to intercept its calls"
_OTHER_PROMPT = "prompts of another kind than those that were tuned"
_OTHER_CACHE = "decode steps of another kind, for example of beam search, or with another cache"


@dataclass(frozen=True)
class Part:
    """Makes one part of a model's texts, which `entry` describes: calls of a `Decoding`, or calls of a `Prompting`.

    `threads`: the number of CPU threads for it; 0 means the usual number. `by_model`: the model itself makes the calls,
    so `make` takes the arguments that `generate` gives to the model.
    """

    make: Callable[..., Any]
    entry: GenerationEntry
    threads: int = 0
    by_model: bool = False


class Texts:
    """Replaces `model` while it generates: the given `parts`, decode steps or prompts, are made by something else.

    If transformers generates token by token, greedily or by sampling (`_sample`), the new cache is replaced by one
    with preallocated memory, unless the model makes all parts. The model itself makes all other calls; `left` counts
    the calls of the given parts that were of another kind, by reason. `texts` is the number of calls of `generate`,
    which took `seconds`; the first decode step took `first_s`. `usual_threads` is the number of CPU threads for what
    the model itself computes; the default is the present one.
    """

    serving: Serving = AS_IT_IS
    label = ""

    def __init__(self, model: nn.Module, *parts: Part, usual_threads: int = 0) -> None:
        self._model, self._any = model, parts[0].entry
        self._parts = {part.entry.part: part for part in parts}
        self._usual = usual_threads or torch.get_num_threads()
        self._threads: dict[str, int] = {part.entry.part: part.threads or self._usual for part in parts}
        sampling = None if all(part.by_model for part in parts) else self._sampling(type(model))
        self.standing = stand_in(model, self, {"_sample": sampling})
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
        """Make a call of the model: for a prompt, for a decode step, or another one."""
        cache, tokens = cache_in(kwargs), kwargs.get("input_ids")
        if not isinstance(tokens, torch.Tensor) or args:
            return self._model(*args, **kwargs)
        self.tokens += tokens.shape[0]
        if isinstance(cache, PreallocatedCache) and not cache.get_seq_length():
            return self._first(cache, kwargs)
        decode, held = self._parts.get("decode"), isinstance(cache, DynamicCache) and cache.get_seq_length()
        if decode is None or not held or tokens.shape[1] > 1:
            return self._by_the_model(kwargs)
        reason = "" if decode.by_model else _reason_against(cache, kwargs, decode.entry)
        if reason:
            return self._by_the_model(kwargs, reason)
        began = self._steps.begin()
        self._settle("decode")
        try:
            return decode.make(**kwargs) if decode.by_model else _step(decode, tokens, cache, kwargs)
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
                kwargs[cache_name_in(kwargs)] = PreallocatedCache(self._any.layers, self._any.capacity)
            return before(model, *args, **kwargs)

        return sample

    def _first(self, cache: PreallocatedCache, kwargs: dict[str, Any]) -> Any:
        """Make the call for a prompt."""
        part = self._parts.get("prompt")
        if part is None:
            return self._by_the_model(kwargs)
        found, entry = prompt_of(kwargs), part.entry
        if found is None or options_of(kwargs) != entry.options or (found.is_padded and not entry.padded):
            return self._by_the_model(kwargs, _OTHER_PROMPT)
        self._settle("prompt")
        logits, held = part.make(*found.sample(padded=entry.padded).args)
        cache.append(held)
        return CausalLMOutputWithPast(logits=logits, **{_CACHE_FIELD: cache})

    def _by_the_model(self, kwargs: Mapping[str, Any], reason: str = "") -> Any:
        """Let the model itself make a call. With a reason, count it as one that was to be served."""
        if reason:
            self.left[reason] += 1
        self._settle("")
        return self._model(**kwargs)

    def _settle(self, part: str) -> None:
        """Set the number of CPU threads of a part, or the usual one, if it is another."""
        threads = self._threads.get(part, self._usual)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)


def _reason_against(cache: DynamicCache, kwargs: Mapping[str, Any], entry: GenerationEntry) -> str:
    """Return why the model itself has to make this decode step, or ""."""
    if not isinstance(cache, PreallocatedCache):
        return _OTHER_CACHE
    others = {name: repr(value) for name, value in kwargs.items() if name not in STEP_INPUTS and value is not None}
    if others != entry.options:
        return f"decode steps with {others}, where it was tuned with {entry.options}"
    mask = kwargs.get("attention_mask")
    return "" if mask is None or mask.dim() == 2 else "decode steps with a mask of four dimensions"


def _step(decode: Part, tokens: torch.Tensor, cache: PreallocatedCache, kwargs: Mapping[str, Any]) -> Any:
    cache.make_room()
    length, positions = cache.length, kwargs.get("position_ids")
    if positions is None:
        positions = tokens.new_full(tokens.shape, length)
    mask = cache.mask_of(kwargs.get("attention_mask"))
    logits, added = decode.make(tokens, positions, mask, tokens.new_full((), length), cache.memory)
    cache.append(added)
    return CausalLMOutputWithPast(logits=logits, **{_CACHE_FIELD: cache})
