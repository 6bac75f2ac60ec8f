"""What a call of transformers' `generate` asks for, beside its prompt."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from torch import nn
from transformers import GenerationConfig
from transformers.generation.configuration_utils import GenerationMode

# One text at a time from each prompt: a decode step's cache is the one before, and a token.
_SUPPORTED = (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE)
_OWN_CACHES = ("past_key_values", "cache_implementation", "prefill_chunk_size")


def settings_of(model: nn.Module, arguments: Mapping[str, Any]) -> GenerationConfig:
    """The configuration of a call: what it was given, and what the model has by itself."""
    given = arguments.get("generation_config") or getattr(model, "generation_config", None) or GenerationConfig()
    settings = copy.deepcopy(given)
    settings.update(**{name: value for name, value in arguments.items() if hasattr(settings, name)})
    return settings


def reason_against(model: nn.Module, arguments: Mapping[str, Any]) -> str:
    """Why the decode steps of such a call cannot be taken as they are tuned, or ""."""
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        return "the model has an encoder, whose cache is another"
    settings = settings_of(model, arguments)
    mode = settings.get_generation_mode(arguments.get("assistant_model"))
    if mode not in _SUPPORTED:
        return f"it generates by {mode.value.replace('_', ' ')}, and not token by token"
    if settings.use_cache is False:
        return "it generates without a cache (use_cache=False)"
    own = next((name for name in _OWN_CACHES if arguments.get(name) is not None), "")
    return f"it is called with {own}, a cache of its own" if own else ""


def planned_tokens(model: nn.Module, arguments: Mapping[str, Any], prompt: int) -> int:
    """How many tokens a text may have at most, its prompt of so many included."""
    settings = settings_of(model, arguments)
    if settings.max_new_tokens is not None:
        return prompt + int(settings.max_new_tokens)
    return max(prompt + 1, int(settings.max_length)) if settings.max_length is not None else prompt + 20
