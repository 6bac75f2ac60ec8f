"""The arguments with which transformers' `generate` calls any model at each decode step."""

STEP_INPUTS = frozenset(
    {"input_ids", "attention_mask", "position_ids", "past_key_values", "use_cache", "return_dict", "cache_position"}
)
