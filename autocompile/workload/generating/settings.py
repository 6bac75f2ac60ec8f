"""Read the settings of a call of transformers' `generate`, besides its prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import GenerationConfig
from transformers.generation.configuration_utils import GenerationMode

from autocompile.workload.generating.cache_argument import cache_name_in

# One text from each prompt: a decode step's cache is the previous one and one token.
_SUPPORTED = (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE)
# Arguments of `generate` that are not settings.
_OTHERS = frozenset(
    ("inputs", "generation_config", "logits_processor", "stopping_criteria", "prefix_allowed_tokens_fn", "synced_gpus")
) | frozenset(
    ("assistant_model", "streamer", "negative_prompt_ids", "negative_prompt_attention_mask", "custom_generate")
)
# The limit if a text has none of its own.
_USUAL_NEW_TOKENS = 20


def settings_of(model: Any, arguments: Mapping[str, Any]) -> GenerationConfig:
    """Return the settings of a call, as transformers merges them.

    They come from the call's arguments, its configuration and the model's.
    """
    named = {name: value for name, value in arguments.items() if name not in _OTHERS}
    prepared = model._prepare_generation_config(arguments.get("generation_config"), **named)  # noqa: SLF001
    return prepared[0]


def reason_against(model: Any, arguments: Mapping[str, Any]) -> str:
    """Return why the decode steps of such a call cannot be tuned, or ""."""
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        return "the model has an encoder, which has a different cache"
    given = "custom_generate" if arguments.get("custom_generate") is not None else cache_name_in(arguments)
    if given:
        return f"it is called with {given}"
    try:
        settings = settings_of(model, arguments)
        mode = settings.get_generation_mode(arguments.get("assistant_model"))
    except Exception as fault:  # transformers will raise it again itself
        return f"its settings cannot be read: {type(fault).__name__}: {fault}"
    return _of_settings(settings, mode)


def _of_settings(settings: GenerationConfig, mode: GenerationMode) -> str:
    if mode not in _SUPPORTED:
        return f"it generates by {mode.value.replace('_', ' ')}, and not token by token"
    if settings.use_cache is False:
        return "it generates without a cache (use_cache=False)"
    if settings.output_hidden_states or settings.output_attentions:
        return "it returns hidden states or attentions, which a tuned decode step does not have"
    own = next((name for name in ("cache_implementation", "prefill_chunk_size") if getattr(settings, name, None)), "")
    return f"it is called with {own}={getattr(settings, own)!r}" if own else ""


def planned_tokens(model: Any, arguments: Mapping[str, Any], prompt: int) -> int:
    """Return the maximum number of tokens of a text, including its prompt of `prompt` tokens."""
    settings = settings_of(model, arguments)
    if settings.max_new_tokens is not None:
        return prompt + int(settings.max_new_tokens)
    is_told = "max_length" in arguments or settings.max_length not in (None, _USUAL_NEW_TOKENS)
    return max(prompt + 1, int(settings.max_length)) if is_told else prompt + _USUAL_NEW_TOKENS


def greedily(model: Any, arguments: Mapping[str, Any], tokens: int) -> dict[str, Any]:
    """Return the arguments of the same call, but for exactly `tokens` new tokens, always the most likely."""
    settings = settings_of(model, arguments)
    named = settings.to_dict()
    settings.do_sample, settings.num_return_sequences = False, 1
    settings.max_new_tokens, settings.min_new_tokens = tokens, tokens
    settings.max_length, settings.min_length, settings.max_time = None, 0, float("inf")
    settings.return_dict_in_generate = settings.output_scores = settings.output_logits = False
    dropped = {"streamer", "stopping_criteria"}
    kept = {name: value for name, value in arguments.items() if name not in dropped and name not in named}
    return {**kept, "generation_config": settings}
